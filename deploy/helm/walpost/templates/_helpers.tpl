{{- define "walpost.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "walpost.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "walpost.labels" -}}
{{ include "walpost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "walpost.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "walpost.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* The variable of a key: WALPOST_KAFKA_SASL_PASSWORD_FILE of kafka.sasl.password_file. */ -}}
{{- define "walpost.variable" -}}
WALPOST_{{ . | replace "." "_" | replace "-" "_" | upper }}
{{- end }}
