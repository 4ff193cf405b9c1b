{{/* What the schema cannot say, each on one line that names the value. No line shows a value: some hold passwords. */}}
{{- define "reveille.check" -}}
{{- $v := .Values -}}
{{- if not $v.upstream.url }}
{{- fail "upstream.url is missing: where the stream server is, such as http://streams:4437 (its stream /a is at {upstream.url}/a)" }}
{{- end }}
{{- $sources := list }}
{{- if $v.redis.url }}{{ $sources = append $sources "redis.url" }}{{ end }}
{{- if $v.redis.existingSecret }}{{ $sources = append $sources "redis.existingSecret" }}{{ end }}
{{- if $v.redis.host }}{{ $sources = append $sources "redis.host" }}{{ end }}
{{- if $v.tryOutRedis.enabled }}{{ $sources = append $sources "tryOutRedis.enabled" }}{{ end }}
{{- if not $sources }}
{{- fail "redis.url is missing: such as redis://user:password@redis:6379/0; or redis.existingSecret, a Secret that holds it; or redis.host; or, to try it out, tryOutRedis.enabled=true" }}
{{- else if gt (len $sources) 1 }}
{{- fail (printf "%s are set: only one of them can be" (join " and " $sources)) }}
{{- end }}
{{- if not (or (empty $v.redis.url) (eq $v.redis.url "embedded") (regexMatch "^rediss?(\\+cluster|\\+sentinel)?://." $v.redis.url)) }}
{{- fail "redis.url is not one of redis://, redis+cluster://, redis+sentinel://, rediss for TLS, or embedded" }}
{{- end }}
{{- if and (eq $v.redis.url "embedded") (eq $v.mode "gateway") (or (gt (int $v.replicaCount) 1) $v.autoscaling.enabled) }}
{{- fail "redis.url=embedded keeps the state in the process: it needs replicaCount=1 and no autoscaling" }}
{{- end }}
{{- if and $v.redis.ca.existingSecret (not (or $v.redis.existingSecret (hasPrefix "rediss" $v.redis.url) $v.redis.tls)) }}
{{- fail "redis.ca.existingSecret is set, but redis.url does not begin with rediss, and redis.tls is not set" }}
{{- end }}
{{- if and (or $v.operatorTokens.readKey (ne $v.operatorTokens.adminKey "admin-token")) (not $v.operatorTokens.existingSecret) }}
{{- fail "a key of operatorTokens is set, but operatorTokens.existingSecret is not: the operator port would ask for no token" }}
{{- end }}
{{- if and $v.noticeWebhook.existingSecret (not $v.settings.eventsStream) }}
{{- fail "noticeWebhook.existingSecret is set, but settings.eventsStream, the stream that notices come from, is not" }}
{{- end }}
{{- range $name := list "username" "tls" }}
{{- if and (get $v.redis $name) (not $v.redis.host) }}
{{- fail (printf "redis.%s is for redis.host: a URL says it itself" $name) }}
{{- end }}
{{- end }}
{{- if $v.redis.existingPasswordSecret }}
{{- if or $v.tryOutRedis.enabled (eq $v.redis.url "embedded") }}
{{- fail "redis.existingPasswordSecret is set, but that Redis takes no password" }}
{{- end }}
{{- if regexMatch "//[^@]*:[^@]+@" $v.redis.url }}
{{- fail "redis.url has a password, and redis.existingPasswordSecret is set: only one of them can be" }}
{{- end }}
{{- end }}
{{- if and $v.caBundle.existingConfigMap $v.caBundle.existingSecret }}
{{- fail "caBundle.existingConfigMap and caBundle.existingSecret are set: only one of them can be" }}
{{- end }}
{{- range $name, $_ := $v.commonLabels }}
{{- if regexMatch "^(app[.]kubernetes[.]io/(name|instance|version|managed-by|component)|helm[.]sh/chart)$" $name }}
{{- fail (printf "commonLabels.%s is a label of the chart's own" $name) }}
{{- end }}
{{- end }}
{{- if and (eq $v.dnsPolicy "None") (not (dig "nameservers" "" ($v.dnsConfig | default dict))) }}
{{- fail "dnsPolicy=None needs dnsConfig.nameservers" }}
{{- end }}
{{- if not $v.publicUrl }}
{{- fail "publicUrl is missing: where workers reach the API port, such as https://reveille.example.com" }}
{{- end }}
{{- range $name, $url := dict "upstream.url" $v.upstream.url "publicUrl" $v.publicUrl }}
{{- if regexMatch "[@?#]" $url }}
{{- fail (printf "%s is to be a URL without user, password, query and fragment (upstream.headers can carry an Authorization)" $name) }}
{{- end }}
{{- end }}
{{- if and $v.upstream.headers $v.upstream.existingSecret }}
{{- fail "upstream.headers and upstream.existingSecret are set: only one of them can be" }}
{{- end }}
{{- range $name, $value := $v.upstream.headers }}
{{- if contains "," (toString $value) }}
{{- fail (printf "upstream.headers.%s holds a comma, which separates headers" $name) }}
{{- end }}
{{- end }}
{{- if eq (int $v.ports.api) (int $v.ports.operator) }}
{{- fail "ports.api and ports.operator are the same" }}
{{- end }}
{{- if lt (int $v.terminationGracePeriodSeconds) (add (int $v.preStopSeconds) 30) }}
{{- fail "terminationGracePeriodSeconds is too short: a stop takes up to preStopSeconds and 30 more" }}
{{- end }}
{{- range $v.extraEnv }}
{{- if hasPrefix "REVEILLE_" .name }}
{{- fail (printf "extraEnv names %s: settings of the program have values of their own (see settings in values.yaml)" .name) }}
{{- end }}
{{- end }}
{{- range $kind := list "ingress" "httpRoute" }}
{{- $route := get $v $kind }}
{{- if $route.enabled }}
{{- if (urlParse $v.publicUrl).path | trimSuffix "/" }}
{{- fail (printf "%s.enabled needs a publicUrl without a path: nothing of the path may be taken off on the way to Reveille" $kind) }}
{{- end }}
{{- if and (eq $route.requests "all") (eq (toString $v.settings.gateway) "false") }}
{{- fail (printf "%s.requests=all needs settings.gateway: without it, only subscriptions and callbacks are answered" $kind) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.ingress.enabled (eq $v.ingress.requests "subscriptions") (ne (toString $v.settings.gateway) "false") }}
{{- fail "ingress.requests=subscriptions needs settings.gateway=false: an Ingress cannot tell subscriptions from streams, whose paths they share (an HTTPRoute can, by the query)" }}
{{- end }}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs is missing: the Gateway that the route is for, such as [{name: public, namespace: gateways}]" }}
{{- end }}
{{- if eq $v.mode "sidecar" }}
{{- range $name := list "initContainers" "extraContainers" "hostAliases" "dnsConfig" "dnsPolicy" }}
{{- if get $v $name }}
{{- fail (printf "%s is for mode gateway: in mode sidecar the pods are yours" $name) }}
{{- end }}
{{- end }}
{{- if $v.autoscaling.enabled }}
{{- fail "autoscaling.enabled is for mode gateway: in mode sidecar the pods are yours to scale" }}
{{- end }}
{{- if $v.networkPolicy.enabled }}
{{- fail "networkPolicy.enabled is for mode gateway: in mode sidecar it would cut off your own containers too" }}
{{- end }}
{{- end }}
{{- $resources := $v.resources | default dict }}
{{- $auto := $v.autoscaling }}
{{- $cpu := $auto.targetCPUUtilizationPercentage }}
{{- $memory := $auto.targetMemoryUtilizationPercentage }}
{{- range $name, $target := dict "cpu" $cpu "memory" $memory }}
{{- if and $auto.enabled $target (not (or (dig "requests" $name "" $resources) (dig "limits" $name "" $resources))) }}
{{- fail (printf "autoscaling.enabled needs resources.requests.%s: the autoscaler aims at a share of it" $name) }}
{{- end }}
{{- end }}
{{- if and $auto.enabled (not (or $cpu $memory $auto.metrics)) }}
{{- fail "autoscaling.enabled needs a target: autoscaling.targetCPUUtilizationPercentage or another" }}
{{- end }}
{{- if and $v.autoscaling.enabled (lt (int $v.autoscaling.maxReplicas) (int $v.autoscaling.minReplicas)) }}
{{- fail "autoscaling.maxReplicas is less than autoscaling.minReplicas" }}
{{- end }}
{{- end }}
