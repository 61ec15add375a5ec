{{/* The text of a file of base/ or overlays/, for the namespace of the release. Call it with a dict: root, file. */}}
{{- define "gpushare.file" -}}
{{- $text := .root.Files.Get .file | required (printf "%s is not in the chart" .file) -}}
{{- $text = replace "namespace: gpushare" (printf "namespace: %s" .root.Release.Namespace) $text -}}
{{- replace "serviceaccount:gpushare:" (printf "serviceaccount:%s:" .root.Release.Namespace) $text -}}
{{- end -}}

{{/* Changes a pod's specification as the patches of an overlay do. Call it with a dict: root, spec, overlay. */}}
{{- define "gpushare.patch" -}}
{{- $spec := .spec -}}
{{- $kustomization := .root.Files.Get (printf "overlays/%s/kustomization.yaml" .overlay) | fromYaml -}}
{{- range $patch := $kustomization.patches -}}
{{- range $operation := fromYamlArray $patch.patch -}}
{{- $way := splitList "/" (trimPrefix "/spec/template/spec/" $operation.path) -}}
{{- $key := first $way -}}
{{- $adds := eq (last $way) "-" -}}
{{- if eq (len $way) 1 -}}
{{- $_ := set $spec $key $operation.value -}}
{{- else if and (eq (len $way) 2) $adds -}}
{{- $_ := set $spec $key (append (get $spec $key) $operation.value) -}}
{{- else if eq (len $way) 2 -}}
{{- $entries := list -}}
{{- range $i, $entry := get $spec $key -}}
{{- $entries = append $entries (ternary $operation.value $entry (eq (toString $i) (last $way))) -}}
{{- end -}}
{{- $_ := set $spec $key $entries -}}
{{- else if and (eq (len $way) 4) $adds -}}
{{- $entry := index (get $spec $key) (index $way 1 | atoi) -}}
{{- $_ := set $entry (index $way 2) (append (get $entry (index $way 2)) $operation.value) -}}
{{- else -}}
{{- fail (printf "overlays/%s: a patch of %s is not known here" $.overlay $operation.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Gives an option of a container another value; one that the container does not have is added. Call it with a dict: container,
name, value. */}}
{{- define "gpushare.option" -}}
{{- $option := printf "--%s=" .name -}}
{{- $arguments := list -}}
{{- range $argument := .container.args -}}
{{- if not (hasPrefix $option $argument) -}}
{{- $arguments = append $arguments $argument -}}
{{- end -}}
{{- end -}}
{{- $_ := set .container "args" (append $arguments (printf "%s%v" $option .value)) -}}
{{- end -}}

{{- define "gpushare.config" -}}
{{- .Values.config | default (.Files.Get "base/gpushare.conf") -}}
{{- end -}}
