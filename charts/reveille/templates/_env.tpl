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
- name: REVEILLE_LISTEN_ADDR
  value: ":{{ .Values.ports.api }}"
- name: REVEILLE_ADMIN_ADDR
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
