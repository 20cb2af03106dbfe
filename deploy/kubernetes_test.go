package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

func TestKubernetesPageCreatesEverySecretOfTheManifests(t *testing.T) {
	t.Parallel()
	page := string(filetest.Read(t, "../docs/kubernetes.md"))
	secrets := regexp.MustCompile(`secretName: ([a-z-]+)`).FindAllSubmatch(filetest.Read(t, "kubernetes/cronce.yaml"), -1)
	if len(secrets) == 0 {
		t.Fatal("the manifests name no secret")
	}
	for _, m := range secrets {
		if name := string(m[1]); !strings.Contains(page, " create secret generic "+name+" ") && !strings.Contains(page, " create secret tls "+name+" ") {
			t.Errorf("no command of the page creates the secret %s", name)
		}
	}
}
