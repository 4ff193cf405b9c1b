package chart

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// cluster is an API server that knows the kinds, and has one Secret or nothing.
func cluster(t testing.TB, secret *core.Secret) *httptest.Server {
	t.Helper()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, version.Info{Major: "1", Minor: "37", GitVersion: "v" + newest})
	})
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, meta.APIVersions{TypeMeta: meta.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	})
	// Which kinds there are: those that the chart may make.
	groups, resources := meta.APIGroupList{TypeMeta: meta.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		map[string][]meta.APIResource{}
	for id := range types {
		version, kind, _ := strings.Cut(id, " ")
		if group, v, ok := strings.Cut(version, "/"); ok && resources[version] == nil {
			served := meta.GroupVersionForDiscovery{GroupVersion: version, Version: v}
			groups.Groups = append(groups.Groups,
				meta.APIGroup{Name: group, Versions: []meta.GroupVersionForDiscovery{served}, PreferredVersion: served})
		}
		resources[version] = append(resources[version], meta.APIResource{
			Name: strings.ToLower(kind) + "s", Kind: kind,
			Namespaced: true, Verbs: meta.Verbs{"get", "list"},
		})
	}
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) { answer(w, groups) })
	for version, list := range resources {
		path := "/apis/" + version
		if !strings.Contains(version, "/") {
			path = "/api/" + version
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, meta.APIResourceList{
				TypeMeta: meta.TypeMeta{Kind: "APIResourceList"}, GroupVersion: version,
				APIResources: list,
			})
		})
	}
	// Where Helm keeps its releases: it has none.
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/secrets", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, core.SecretList{TypeMeta: meta.TypeMeta{Kind: "SecretList", APIVersion: "v1"}})
	})
	missing := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(meta.Status{
			TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   "Failure", Reason: meta.StatusReasonNotFound, Code: 404,
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { missing(w) })
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/secrets/{name}", func(w http.ResponseWriter, r *http.Request) {
		if secret != nil && r.PathValue("namespace") == namespace && r.PathValue("name") == secret.Name {
			answer(w, secret)
			return
		}
		missing(w)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// againstCluster runs Helm with an API server to ask.
func againstCluster(t testing.TB, s *httptest.Server, args []string, values ...string) (string, error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
 users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: "` + s.URL + `"}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = slices.Concat(args, []string{"--namespace", namespace}, valuesFiles(t, values))
	out, diag, err := helm(t, []string{"KUBECONFIG=" + config}, args...)
	if err != nil {
		t.Log(diag)
	}
	return out, err
}

func TestTheTokenKeyIsMadeOnceAndKept(t *testing.T) {
	longForm(t)
	t.Parallel()
	const name = "wake-reveille-token-key"
	ask := []string{"template", release, chartDir, "--kube-version", newest, "--dry-run=server"}
	made := func(text string) *core.Secret { return named[*core.Secret](t, decode(t, text), name) }

	text, err := againstCluster(t, cluster(t, nil), ask, required)
	if err != nil {
		t.Fatal(err)
	}
	first := made(text)
	if n := len(first.Data["token-key"]); n != 64 {
		t.Errorf("the key has %d bytes, want 64", n)
	}
	if first.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("the key is deleted with the release")
	}
	// A tool that cannot ask the cluster makes another key each time; this has the cluster refuse it.
	if first.Immutable == nil || !*first.Immutable {
		t.Error("the key can be changed")
	}
	if text, err = againstCluster(t, cluster(t, nil), ask, required); err != nil {
		t.Fatal(err)
	}
	if string(made(text).Data["token-key"]) == string(first.Data["token-key"]) {
		t.Error("two installations have the same key")
	}
	if text, err = againstCluster(t, cluster(t, first), ask, required); err != nil {
		t.Fatal(err)
	}
	if string(made(text).Data["token-key"]) != string(first.Data["token-key"]) {
		t.Error("an upgrade makes another key")
	}

	delete(first.Data, "token-key")
	if _, err = againstCluster(t, cluster(t, first), ask, required); err == nil {
		t.Error("a Secret without the key is taken for one with it")
	}
}
