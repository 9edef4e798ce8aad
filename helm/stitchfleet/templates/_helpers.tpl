{{/* The release's name, with the chart's if that is not in it; room is left for suffixes. */}}
{{- define "stitchfleet.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Cluster-scoped objects are told apart by the namespace too: two releases of one name in two namespaces. */}}
{{- define "stitchfleet.clusterName" -}}
{{ include "stitchfleet.name" . }}-{{ .Release.Namespace }}
{{- end }}

{{- define "stitchfleet.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: stitchfleet
{{ include "stitchfleet.selector" . }}
{{- end }}

{{- define "stitchfleet.selector" -}}
app.kubernetes.io/name: stitchfleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of a repository, the mirror's where one is named. */}}
{{- define "stitchfleet.registry" -}}
{{- with .Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}
{{- end }}

{{- define "stitchfleet.image" -}}
{{ include "stitchfleet.registry" . }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "stitchfleet.payloadImage" -}}
{{ include "stitchfleet.registry" . }}{{ .Values.payload.repository }}:{{ .Values.payload.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Of each pod of ours: where it runs, and how its image is pulled. Never empty, so that it can stand anywhere in a spec. */}}
{{- define "stitchfleet.podFields" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The Secret whose ca.crt is the authority of both servers' certificates. */}}
{{- define "stitchfleet.authoritySecret" -}}
{{ include "stitchfleet.name" . }}-{{ ternary "ingest-tls" "certificates" .Values.certificates.certManager.enabled }}
{{- end }}

{{- define "stitchfleet.egressOfAll" -}}
# names
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
# the API server, whose address no selector finds
- ports: [{port: 443, protocol: TCP}, {port: {{ .Values.networkPolicy.apiServerPort }}, protocol: TCP}]
{{- end }}

{{- define "stitchfleet.egressToDatabase" -}}
- ports: [{port: {{ .Values.networkPolicy.databasePort }}, protocol: TCP}]
{{- end }}

{{- define "stitchfleet.isExternal" -}}
{{- if .Values.database.external.secretName }}true{{ end }}
{{- end }}

{{/* Of each pod of ours: what the "restricted" pod security level asks for. */}}
{{- define "stitchfleet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "stitchfleet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "stitchfleet.imageFields" -}}
image: {{ include "stitchfleet.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "stitchfleet.containerSecurity" . | nindent 2 }}
{{- end }}

{{/* Environment and mounts of whoever uses the database. */}}
{{- define "stitchfleet.databaseEnvironment" -}}
- name: STITCHFLEET_DATABASE
{{- if include "stitchfleet.isExternal" . }}
  valueFrom: {secretKeyRef: {name: {{ .Values.database.external.secretName }}, key: {{ .Values.database.external.secretKey }}}}
{{- else }}
  value: /data/stitchfleet.db
{{- end }}
{{- end }}

{{- define "stitchfleet.databaseMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if not (include "stitchfleet.isExternal" .) }}
- {name: data, mountPath: /data}
{{- end }}
{{- end }}

{{- define "stitchfleet.ingestContainer" -}}
name: ingest
{{ include "stitchfleet.imageFields" . }}
args:
  - ingest
  - --kubernetes
  - --host=0.0.0.0
  - --tls-certificate=/certificates/ingest.crt
  - --tls-key=/certificates/ingest.key
env: {{- include "stitchfleet.databaseEnvironment" . | nindent 2 }}
ports:
  - {name: https, containerPort: 8475}
livenessProbe:
  httpGet: {path: /healthz, port: https, scheme: HTTPS}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: https, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 5
startupProbe:
  httpGet: {path: /healthz, port: https, scheme: HTTPS}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 120
resources: {{- toYaml .Values.ingest.resources | nindent 2 }}
volumeMounts:
  {{- include "stitchfleet.databaseMounts" . | nindent 2 }}
  - {name: certificates, mountPath: /certificates, readOnly: true}
{{- end }}

{{- define "stitchfleet.controllerContainer" -}}
name: controller
{{ include "stitchfleet.imageFields" . }}
args:
  - controller
  - --keep-days={{ .Values.controller.keepDays }}
  - --pauses={{ include "stitchfleet.name" . }}-pauses
  - --look-seconds={{ .Values.controller.lookSeconds }}
  - --reports-url={{ .Values.ingest.reportsUrl | default (printf "https://%s-ingest.%s.svc:8475" (include "stitchfleet.name" .) .Release.Namespace) }}
env: {{- include "stitchfleet.databaseEnvironment" . | nindent 2 }}
ports:
  - {name: health, containerPort: 8080}
  - {name: metrics, containerPort: 8081}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 20
  timeoutSeconds: 5
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 120
resources: {{- toYaml .Values.controller.resources | nindent 2 }}
volumeMounts: {{- include "stitchfleet.databaseMounts" . | nindent 2 }}
{{- end }}

{{- define "stitchfleet.certificatesVolume" -}}
# The pod waits for the Secret, which the webhook or cert-manager makes; no signing key is brought here.
- name: certificates
  secret:
    {{- if .Values.certificates.certManager.enabled }}
    secretName: {{ include "stitchfleet.name" . }}-ingest-tls
    items:
      - {key: tls.crt, path: ingest.crt}
      - {key: tls.key, path: ingest.key}
    {{- else }}
    secretName: {{ include "stitchfleet.name" . }}-certificates
    items:
      - {key: ingest.crt, path: ingest.crt}
      - {key: ingest.key, path: ingest.key}
    {{- end }}
{{- end }}
