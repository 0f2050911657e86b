{{/*
A CronJob that suspends jobs whose waiting step is gone, its account and role, once for a namespace: what `trainwright rbac --clean-up`
prints. (dict "root" . "made" DICT "namespace" NAMESPACE "mode" MODE "suffix" SUFFIX)
*/}}
{{- define "trainwright.cleanUp" }}
{{- $name := printf "%s-clean-up" (include "trainwright.fullname" .root) }}
{{- $role := printf "%s%s" $name .suffix }}
{{- $given := . }}
{{- if not (hasKey .made (printf "clean-up/%s/%s" .namespace .mode)) }}
{{- $_ := set .made (printf "clean-up/%s/%s" .namespace .mode) true }}
{{- include "trainwright.role" (dict "root" .root "kind" "Role" "role" $role "namespace" .namespace "rules" (printf "%s-clean-up" .mode)) }}
{{- $client := dict "namespace" .namespace "serviceAccounts" (list $name) }}
{{- include "trainwright.bindings" (dict "root" .root "client" $client "kind" "Role" "role" $role "namespace" .namespace) }}
{{- if not (hasKey .made (printf "clean-up/%s" .namespace)) }}
{{- $_ := set .made (printf "clean-up/%s" .namespace) true }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "trainwright.labels" .root | nindent 4 }}
{{- end }}
{{- range $mode := ternary (list "trainjob" "jobset") (list .mode) (eq .mode "auto") }}
{{- $job := ternary $name (printf "%s-%s" $name $mode) (eq $mode "trainjob") }}
{{- if not (hasKey $given.made (printf "clean-up-job/%s/%s" $given.namespace $job)) }}
{{- $_ := set $given.made (printf "clean-up-job/%s/%s" $given.namespace $job) true }}
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $job }}
  namespace: {{ $given.namespace }}
  labels:
    {{- include "trainwright.labels" $given.root | nindent 4 }}
spec:
  schedule: {{ $given.root.Values.cleanUp.schedule | quote }}
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 1
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: 240
      template:
        spec:
          serviceAccountName: {{ $name }}
          restartPolicy: Never
          {{- with $given.root.Values.image.pullSecrets }}
          imagePullSecrets:
            {{- range . }}
            - name: {{ . }}
            {{- end }}
          {{- end }}
          securityContext:
            runAsNonRoot: true
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: clean
              image: {{ include "trainwright.image" (list $given.root "launcher") }}
              {{- if ne $given.root.Values.image.pullPolicy "IfNotPresent" }}
              imagePullPolicy: {{ $given.root.Values.image.pullPolicy }}
              {{- end }}
              command: [trainwright, clean]
              args:
                - --abandoned
                - "--yes"
                - --namespace={{ $given.namespace }}
                - --submission-mode={{ $mode }}
              env:
                - name: HOME
                  value: /tmp
              resources:
                {{- toYaml $given.root.Values.cleanUp.resources | nindent 16 }}
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: [ALL]
              volumeMounts:
                - name: tmp
                  mountPath: /tmp
          volumes:
            - name: tmp
              emptyDir: {}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
