{{/*
What a pod of the user's own includes, with the context of this chart, which is .Subcharts.reveille where it is a dependency:

  template:
    metadata:
      labels: {{- include "reveille.sidecarLabels" .Subcharts.reveille | nindent 8 }}
    spec:
      terminationGracePeriodSeconds: {{ include "reveille.sidecarGracePeriod" .Subcharts.reveille }}
      containers: {{- include "reveille.sidecar" .Subcharts.reveille | nindent 8 }}
      volumes: {{- include "reveille.sidecarVolumes" .Subcharts.reveille | nindent 8 }}
*/}}
{{- define "reveille.sidecar" -}}
{{- if ne .Values.mode "sidecar" }}
{{- fail "the template reveille.sidecar was included, but mode is gateway: set mode to sidecar" }}
{{- end }}
{{- include "reveille.check" . -}}
{{- include "reveille.container" . -}}
{{- end }}

{{/* By these labels the Services, the ServiceMonitor and the NetworkPolicy find the pod. */}}
{{- define "reveille.sidecarLabels" -}}
{{ include "reveille.selectorLabels" . }}
{{- end }}

{{- define "reveille.sidecarGracePeriod" -}}
{{ .Values.terminationGracePeriodSeconds }}
{{- end }}

{{/* Volumes of the container above; empty unless values ask for some. */}}
{{- define "reveille.sidecarVolumes" -}}
{{ include "reveille.volumes" . }}
{{- end }}
