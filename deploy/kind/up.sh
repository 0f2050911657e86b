#!/usr/bin/env bash
# A cluster in docker with JobSet, Kubeflow Trainer and our chart: deploy/kind/up.sh [--name NAME] [--pipelines]
# Needs docker, kind, kubectl and helm. Run again, it continues where it was. `kind delete cluster --name NAME` removes everything.
set -euo pipefail
cd "$(dirname "$0")/../.."

jobset=v0.12.0
trainer=v2.3.0
pipelines=2.17.0
name=trainwright
with_pipelines=
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2; shift ;;
    --pipelines) with_pipelines=yes ;;
    *) echo "$0: unknown argument: $1" >&2; exit 2 ;;
  esac
  shift
done
for program in docker kind kubectl helm; do
  command -v "$program" > /dev/null || { echo "$0: $program is not installed" >&2; exit 1; }
done
docker info > /dev/null || { echo "$0: no docker engine is running" >&2; exit 1; }

kind get clusters | grep -qx "$name" || kind create cluster --name "$name" --config deploy/kind/cluster.yaml --wait 5m
kubectl() { command kubectl --context "kind-$name" "$@"; }

kubectl apply --server-side -f "https://github.com/kubernetes-sigs/jobset/releases/download/$jobset/manifests.yaml"
kubectl wait --for=condition=Available deployment --all -n jobset-system --timeout 5m
kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=$trainer"
kubectl wait --for=condition=Available deployment --all -n kubeflow-system --timeout 5m
kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/runtimes?ref=$trainer"
if [ -n "$with_pipelines" ]; then
  kubectl apply -k "github.com/kubeflow/pipelines/manifests/kustomize/cluster-scoped-resources?ref=$pipelines"
  kubectl wait --for=condition=Established crd/applications.app.k8s.io --timeout 2m
  kubectl apply -k "github.com/kubeflow/pipelines/manifests/kustomize/env/platform-agnostic?ref=$pipelines"
  kubectl wait --for=condition=Available deployment --all -n kubeflow --timeout 15m
fi

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' trainwright/__init__.py)
deploy/images/build.sh --builder docker --registry localhost/trainwright launcher trainer
kind load docker-image --name "$name" "localhost/trainwright/launcher:$version" "localhost/trainwright/trainer:$version"

for namespace in training kubeflow; do
  kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f -
done
helm upgrade --install trainwright deploy/chart --kube-context "kind-$name" --namespace trainwright-system --create-namespace \
  --values deploy/kind/values.yaml
echo "TRAINWRIGHT_IMAGE='localhost/trainwright/{image}:$version'  kubectl config use-context kind-$name"
