{{- define "reveille.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Names leave room for the longest suffix that is added to them, "-try-out-redis". */}}
{{- define "reveille.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 49 | trimSuffix "-" }}
{{- else if contains (include "reveille.name" .) .Release.Name }}
{{- .Release.Name | trunc 49 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "reveille.name" .) | trunc 49 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "reveille.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- $registry := .Values.image.registry | default (include "reveille.globalRegistry" .) }}
{{- $name := include "reveille.inRegistry" (list $registry .Values.image.repository) }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name $tag }}
{{- end }}
{{- end }}

{{/* An image in a registry, unless it names one itself: by a dot or a port before the first slash. */}}
{{- define "reveille.inRegistry" -}}
{{- $registry := index . 0 | trimSuffix "/" }}{{ $image := index . 1 }}
{{- $own := regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image }}
{{- if or $own (not $registry) }}{{ $image }}{{ else }}{{ $registry }}/{{ $image }}{{ end }}
{{- end }}

{{/* The registry that a chart with this one in it sets for all. */}}
{{- define "reveille.globalRegistry" -}}
{{- dig "imageRegistry" "" (.Values.global | default dict) | default "" }}
{{- end }}

{{/* The labels of an object: those of values, maps that are given beside the context, and the chart's own. The chart's
own go over the others, because selectors are made of them. */}}
{{- define "reveille.labels" -}}
{{- $root := index . 0 }}
{{- $all := deepCopy ($root.Values.commonLabels | default dict) }}
{{- range rest . }}{{ $all = mergeOverwrite $all (deepCopy (. | default dict)) }}{{ end }}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
  "app.kubernetes.io/name" (include "reveille.name" $root) "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" (toString $root.Chart.AppVersion) "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- toYaml (mergeOverwrite $all $own) }}
{{- end }}

{{/* The annotations of an object, as its labels, and the line that begins them; empty without any. */}}
{{- define "reveille.annotations" -}}
{{- $all := deepCopy ((index . 0).Values.commonAnnotations | default dict) }}
{{- range rest . }}{{ $all = mergeOverwrite $all (deepCopy (. | default dict)) }}{{ end }}
{{- with $all -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels that pods with Reveille in them, and nothing else, have. A pod of the user's own has its own app.kubernetes.io/name,
so the sidecar is known by a label of its own. */}}
{{- define "reveille.selectorLabels" -}}
{{- if eq .Values.mode "sidecar" -}}
reveille-sidecar: {{ include "reveille.fullname" . }}
{{- else -}}
app.kubernetes.io/name: {{ include "reveille.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}
{{- end }}

{{- define "reveille.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "reveille.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "reveille.operatorService" -}}
{{ include "reveille.fullname" . }}-operator
{{- end }}

{{- define "reveille.tokenKeySecret" -}}
{{- .Values.tokenKey.existingSecret | default (printf "%s-token-key" (include "reveille.fullname" .)) }}
{{- end }}

{{- define "reveille.tryOutRedis" -}}
{{ include "reveille.fullname" . }}-try-out-redis
{{- end }}

{{/* The user that a pod or a container runs as, given beside the context; none where OpenShift chooses. */}}
{{- define "reveille.user" -}}
{{- $root := index . 0 }}{{ $user := index . 1 }}
{{- ternary dict (dict "runAsUser" $user "runAsGroup" $user) $root.Values.openshift | toJson }}
{{- end }}

{{/* The security context of a pod. */}}
{{- define "reveille.podSecurity" -}}
{{- $own := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- $given := deepCopy ((index . 0).Values.podSecurityContext | default dict) }}
{{- include "reveille.withoutNull" (mergeOverwrite $own (include "reveille.user" . | fromJson) $given) }}
{{- end }}

{{/* The security context of a container, which may do nothing but run. */}}
{{- define "reveille.containerSecurity" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "runAsNonRoot" true
  "capabilities" (dict "drop" (list "ALL")) "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- $given := deepCopy ((index . 0).Values.securityContext | default dict) }}
{{- include "reveille.withoutNull" (mergeOverwrite $own (include "reveille.user" . | fromJson) $given) }}
{{- end }}

{{/* A map without the fields that values took away by null. */}}
{{- define "reveille.withoutNull" -}}
{{- $kept := dict }}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $kept $name $value }}{{ end }}
{{- end }}
{{- toYaml $kept }}
{{- end }}

{{/* A quantity of memory in bytes; empty if it is in a form that is read by Kubernetes alone, such as 1e9. */}}
{{- define "reveille.bytes" -}}
{{- if not (kindIs "string" .) }}
{{- int64 . }}
{{- else if regexMatch "^[0-9]+([.][0-9]+)?([kMGTP]|[KMGTP]i)?$" . }}
{{- $number := regexFind "^[0-9.]+" . }}{{ $unit := trimPrefix $number . }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 }}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 }}
{{- end }}
{{- end }}

{{/* The host of the public URL, which Ingress and HTTPRoute are for unless they name others. */}}
{{- define "reveille.publicHost" -}}
{{- (urlParse .Values.publicUrl).hostname }}
{{- end }}
