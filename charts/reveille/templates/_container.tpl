{{/* The container of Reveille, as an item of a list: the same one in the Deployment and as a sidecar. */}}
{{- define "reveille.container" -}}
- name: reveille
  image: {{ include "reveille.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if and (eq .Values.mode "sidecar") .Values.sidecar.native }}
  restartPolicy: Always
  {{- end }}
  env:
    {{- include "reveille.env" . | nindent 4 }}
  {{- with .Values.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - name: {{ include "reveille.portName" (list . "api") }}
      containerPort: {{ .Values.ports.api }}
      protocol: TCP
    - name: {{ include "reveille.portName" (list . "operator") }}
      containerPort: {{ .Values.ports.operator }}
      protocol: TCP
  # It answers from the first moment, also while it waits for Redis: a start needs no probe of its own.
  livenessProbe:
    httpGet:
      path: /healthz
      port: {{ include "reveille.portName" (list . "operator") }}
    {{- toYaml .Values.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: {{ include "reveille.portName" (list . "operator") }}
    {{- toYaml .Values.readinessProbe | nindent 4 }}
  {{- with .Values.startupProbe }}
  startupProbe:
    httpGet:
      path: /healthz
      port: {{ include "reveille.portName" (list $ "operator") }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # A pod is taken out of its Services while it is being stopped, not before. Until every proxy has heard of it, requests still
  # come, so the program is told to stop only then.
  lifecycle:
    {{- if not (dig "preStop" "" (.Values.lifecycle | default dict)) }}
    preStop:
      sleep:
        seconds: {{ .Values.preStopSeconds }}
    {{- end }}
    {{- with .Values.lifecycle }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "reveille.containerSecurity" (list . 65532) | nindent 4 }}
  {{- with include "reveille.volumeMounts" . }}
  volumeMounts:
    {{- . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* In a pod of the user's own, names such as "api" may be taken. */}}
{{- define "reveille.portName" -}}
{{- $root := index . 0 }}{{ $port := index . 1 }}
{{- ternary (printf "reveille-%s" (ternary "op" $port (eq $port "operator"))) $port (eq $root.Values.mode "sidecar") }}
{{- end }}

{{- define "reveille.volumeMounts" -}}
{{- if .Values.redis.ca.existingSecret -}}
- name: reveille-redis-ca
  mountPath: /etc/reveille/redis-ca
  readOnly: true
{{- end }}
{{- if include "reveille.caBundle" . }}
- name: reveille-ca-bundle
  mountPath: /etc/reveille/ca-bundle
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "reveille.volumes" -}}
{{- if .Values.redis.ca.existingSecret -}}
- name: reveille-redis-ca
  secret:
    secretName: {{ .Values.redis.ca.existingSecret }}
    items:
      - key: {{ .Values.redis.ca.key }}
        path: {{ .Values.redis.ca.key }}
{{- end }}
{{- with include "reveille.caBundle" . }}
- name: reveille-ca-bundle
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the further certificate authorities are; empty without any. */}}
{{- define "reveille.caBundle" -}}
{{- with .Values.caBundle.existingConfigMap -}}
configMap:
  name: {{ . }}
{{- end }}
{{- with .Values.caBundle.existingSecret -}}
secret:
  secretName: {{ . }}
{{- end }}
{{- end }}
