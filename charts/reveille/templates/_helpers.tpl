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
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository $tag }}
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "reveille.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "reveille.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
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

{{/* What a container may do: nothing but run. */}}
{{- define "reveille.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The host of the public URL, which Ingress and HTTPRoute are for unless they name others. */}}
{{- define "reveille.publicHost" -}}
{{- (urlParse .Values.publicUrl).hostname }}
{{- end }}
