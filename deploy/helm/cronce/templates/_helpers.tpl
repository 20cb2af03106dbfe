{{- define "cronce.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "cronce.fullname" -}}
{{- $name := include "cronce.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* selector takes (list CONTEXT COMPONENT). */}}
{{- define "cronce.selector" -}}
app.kubernetes.io/name: {{ include "cronce.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* labels takes (list CONTEXT COMPONENT). */}}
{{- define "cronce.labels" -}}
{{ include "cronce.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cronce.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "cronce.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "cronce.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "cronce.jobsConfigMap" -}}
{{ .Values.worker.jobs.existingConfigMap | default (printf "%s-jobs" (include "cronce.fullname" .)) }}
{{- end }}

{{- define "cronce.hasJobs" -}}
{{- if or .Values.worker.jobs.file .Values.worker.jobs.existingConfigMap }}true{{ end }}
{{- end }}

{{- /* pod is what all pods have. It takes (list CONTEXT LOGIN). */}}
{{- define "cronce.pod" -}}
{{- $ := index . 0 -}}
serviceAccountName: {{ include "cronce.serviceAccount" $ }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $.Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- /* container is what all containers have. It takes CONTEXT. */}}
{{- define "cronce.container" -}}
image: {{ include "cronce.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}

{{- /* env is how a container connects. It takes (list CONTEXT LOGIN). */}}
{{- define "cronce.env" -}}
{{- $ := index . 0 }}{{- $login := index . 1 -}}
- name: CRONCE_SERVER
  value: {{ required "nats.servers is empty: set the URLs of your NATS servers, as in nats://nats.nats.svc:4222" $.Values.nats.servers | quote }}
- name: CRONCE_NAMESPACE
  value: {{ $.Values.nats.namespace | quote }}
{{- with $.Values.nats.jsDomain }}
- name: CRONCE_JS_DOMAIN
  value: {{ . | quote }}
{{- end }}
{{- if $login.secret }}
{{- if eq $login.type "creds" }}
- name: CRONCE_CREDS
  value: /etc/cronce/login/creds
{{- else if eq $login.type "nkey" }}
- name: CRONCE_NKEY
  value: /etc/cronce/login/nkey
{{- else if eq $login.type "token" }}
- name: CRONCE_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $login.secret }}, key: token}}
{{- else }}
- name: CRONCE_USER
  valueFrom: {secretKeyRef: {name: {{ $login.secret }}, key: user}}
- name: CRONCE_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $login.secret }}, key: password}}
{{- end }}
{{- end }}
{{- if $.Values.nats.tls.secret }}
- name: CRONCE_TLSCA
  value: /etc/cronce/tls/ca.crt
{{- if $.Values.nats.tls.clientCertificate }}
- name: CRONCE_TLSCERT
  value: /etc/cronce/tls/tls.crt
- name: CRONCE_TLSKEY
  value: /etc/cronce/tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- /* mounts and volumes hold what env names. They take (list CONTEXT LOGIN). */}}
{{- define "cronce.mounts" -}}
{{- $ := index . 0 }}{{- $login := index . 1 }}
{{- if and $login.secret (has $login.type (list "creds" "nkey")) }}
- {name: login, mountPath: /etc/cronce/login, readOnly: true}
{{- end }}
{{- if $.Values.nats.tls.secret }}
- {name: tls, mountPath: /etc/cronce/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "cronce.volumes" -}}
{{- $ := index . 0 }}{{- $login := index . 1 }}
{{- if and $login.secret (has $login.type (list "creds" "nkey")) }}
- name: login
  secret: {secretName: {{ $login.secret }}, defaultMode: 0440, items: [{key: {{ $login.type }}, path: {{ $login.type }}}]}
{{- end }}
{{- if $.Values.nats.tls.secret }}
- name: tls
  secret: {secretName: {{ $.Values.nats.tls.secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- /* probes ask what --metrics-addr serves. */}}
{{- define "cronce.probes" -}}
# It fails only if the process is stuck. It does not depend on the broker.
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}
