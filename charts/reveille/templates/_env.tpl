{{/* The settings of the program: every REVEILLE_ variable that the chart sets is here. */}}
{{- define "reveille.env" -}}
{{- $fullname := include "reveille.fullname" . -}}
- name: REVEILLE_UPSTREAM_URL
  value: {{ .Values.upstream.url | quote }}
{{- with .Values.upstream.name }}
- name: REVEILLE_UPSTREAM_NAME
  value: {{ . | quote }}
{{- end }}
{{- if or .Values.upstream.existingSecret .Values.upstream.headers }}
- name: REVEILLE_UPSTREAM_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .Values.upstream.existingSecret | default $fullname }}
      key: {{ ternary .Values.upstream.existingSecretKey "upstream-headers" (not (empty .Values.upstream.existingSecret)) }}
{{- end }}
{{- with .Values.upstream.signingKey.existingSecret }}
- name: REVEILLE_UPSTREAM_SIGNING_KEY
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.upstream.signingKey.existingSecretKey }}
{{- end }}
- name: REVEILLE_REDIS_URL
{{- if .Values.redis.existingSecret }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret }}
      key: {{ .Values.redis.existingSecretKey }}
{{- else if .Values.redis.host }}
  value: {{ include "reveille.redisHostURL" . | quote }}
{{- else if .Values.tryOutRedis.enabled }}
  value: redis://{{ include "reveille.tryOutRedis" . }}:6379
{{- else if eq .Values.redis.url "embedded" }}
  value: embedded
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ $fullname }}
      key: redis-url
{{- end }}
{{- with .Values.redis.existingPasswordSecret }}
- name: REVEILLE_REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.redis.existingPasswordSecretKey }}
{{- end }}
{{- if .Values.redis.ca.existingSecret }}
- name: REVEILLE_REDIS_CA_FILE
  value: /etc/reveille/redis-ca/{{ .Values.redis.ca.key }}
{{- end }}
- name: REVEILLE_PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
- name: REVEILLE_TOKEN_KEY
  valueFrom:
    secretKeyRef:
      name: {{ include "reveille.tokenKeySecret" . }}
      key: {{ .Values.tokenKey.existingSecretKey }}
{{- with .Values.operatorTokens.existingSecret }}
- name: REVEILLE_ADMIN_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.operatorTokens.adminKey }}
{{- if $.Values.operatorTokens.readKey }}
- name: REVEILLE_READ_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.operatorTokens.readKey }}
{{- end }}
{{- end }}
{{- with .Values.noticeWebhook.existingSecret }}
- name: REVEILLE_NOTICE_WEBHOOK
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.noticeWebhook.existingSecretKey }}
{{- end }}
- name: REVEILLE_LISTEN_ADDR
  value: ":{{ .Values.ports.api }}"
- name: REVEILLE_OPERATOR_ADDR
  value: ":{{ .Values.ports.operator }}"
{{- range $name, $value := .Values.settings }}
{{- if not (kindIs "invalid" $value) }}
- name: REVEILLE_{{ regexReplaceAll "[A-Z]" $name "_$0" | upper }}
  {{- if kindIs "slice" $value }}
  value: {{ join "," $value | quote }}
  {{- else if kindIs "float64" $value }}
  {{- /* Numbers in values are floating: a million would be written 1e+06. */}}
  value: {{ int64 $value | quote }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- if include "reveille.caBundle" . }}
- name: SSL_CERT_DIR
  value: /etc/reveille/ca-bundle
{{- end }}
{{- with include "reveille.goMemLimit" . }}
- name: GOMEMLIMIT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.otel.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_SERVICE_NAME
  value: {{ $fullname }}
- name: REPLICA_POD
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $.Release.Namespace }},k8s.pod.name=$(REPLICA_POD)
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The URL of redis.host, without the password. */}}
{{- define "reveille.redisHostURL" -}}
{{- $r := .Values.redis }}
{{- $user := ternary (printf "%s@" (urlquery $r.username)) "" (ne $r.username "") }}
{{- printf "%s://%s%s:%d/%d" (ternary "rediss" "redis" $r.tls) $user $r.host (int $r.port) (int $r.database) }}
{{- end }}

{{/* A share of the memory limit in bytes; empty without a limit, and if extraEnv sets it. */}}
{{- define "reveille.goMemLimit" -}}
{{- $limit := dig "limits" "memory" "" (.Values.resources | default dict) }}
{{- $set := false }}
{{- range .Values.extraEnv }}{{ if eq .name "GOMEMLIMIT" }}{{ $set = true }}{{ end }}{{ end }}
{{- if and $limit .Values.goMemLimitPercent (not $set) }}
{{- $bytes := include "reveille.bytes" $limit }}
{{- if not $bytes }}
{{- fail "resources.limits.memory is to be a number with a unit such as 2Gi, unless goMemLimitPercent is 0" }}
{{- end }}
{{- div (mul (int64 $bytes) .Values.goMemLimitPercent) 100 }}
{{- end }}
{{- end }}
