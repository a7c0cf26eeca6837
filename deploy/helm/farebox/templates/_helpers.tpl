{{- /* The name of all objects: the release, which for "helm install farebox" is farebox. */ -}}
{{- define "farebox.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "farebox.selector" -}}
app.kubernetes.io/name: farebox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "farebox.labels" -}}
{{ include "farebox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
