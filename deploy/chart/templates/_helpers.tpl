{{/* The prefix of all names: the release, with the chart if it is named otherwise. */}}
{{- define "trainwright.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "trainwright.controller" -}}
{{- printf "%s-controller" (include "trainwright.fullname" .) -}}
{{- end -}}

{{- define "trainwright.page" -}}
{{- printf "%s-page" (include "trainwright.fullname" .) -}}
{{- end -}}

{{- define "trainwright.pageSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: page
{{- end -}}

{{- define "trainwright.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "trainwright.controllerSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* One of the project's images: (list . "launcher"). */}}
{{- define "trainwright.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- printf "%s:%s" (replace "{image}" (index . 1) $image.name) (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}

{{/* A binding for each account: (dict "root" . "client" CLIENT "kind" Role|ClusterRole "role" NAME "namespace" NAMESPACE). */}}
{{- define "trainwright.bindings" -}}
{{- $given := . -}}
{{- range .client.serviceAccounts }}
{{- $words := splitList ":" . }}
{{- $account := last $words }}
{{- $home := $given.client.namespace }}
{{- if eq (len $words) 2 }}{{ $home = first $words }}{{ end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $given.kind }}Binding
metadata:
  name: {{ printf "%s:%s:%s" $given.role $home $account }}
  {{- with $given.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "trainwright.labels" $given.root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $given.kind }}
  name: {{ $given.role }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $home }}
{{- end }}
{{- end -}}

{{/* A Role or ClusterRole: (dict "root" . "kind" KIND "role" NAME "namespace" NAMESPACE "rules" FILE). */}}
{{- define "trainwright.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .role }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "trainwright.labels" .root | nindent 4 }}
rules:
  {{- .root.Files.Get (printf "files/rules/%s.yaml" .rules) | nindent 2 }}
{{- end -}}
