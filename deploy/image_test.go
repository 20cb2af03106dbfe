package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// The Dockerfile needs a registry, so no test builds it. It says of the image what build.sh says.
func TestDockerfileDescribesTheImageThatBuildShMakes(t *testing.T) {
	t.Parallel()
	script, file := string(filetest.Read(t, "image/build.sh")), string(filetest.Read(t, "image/Dockerfile"))
	build, image, found := strings.Cut(file, "\nFROM scratch\n")
	if !found {
		t.Fatal("the Dockerfile has no image from scratch")
	}
	for pattern, line := range map[string]string{
		`--user (\S+) `:              "USER $1\n",
		`--entrypoint '(.*?)'`:       "ENTRYPOINT $1\n",
		`--cmd (\S+) `:               `CMD ["$1"]`,
		`--workingdir (\S+) `:        "WORKDIR $1\n",
		`--env (\S+) --env (\S+) \\`: "ENV $1 $2\n",
	} {
		m := regexp.MustCompile(pattern).FindStringSubmatchIndex(script)
		if m == nil {
			t.Errorf("build.sh has nothing like %s", pattern)
			continue
		}
		want := string(regexp.MustCompile(pattern).ExpandString(nil, line, script, m))
		if !strings.Contains(image, want) {
			t.Errorf("the Dockerfile has no line %q, as build.sh says", want)
		}
	}
	for _, want := range []string{"ENV CGO_ENABLED=0", `-trimpath -ldflags="-s -w"`, "-m 0644 /etc/ssl/certs/ca-certificates.crt", "-m 0700 -o 65532 -g 65532 "} {
		if !strings.Contains(build, want) {
			t.Errorf("the Dockerfile does not say %s", want)
		}
	}
	if strings.Count(image, "COPY") != 1 || strings.Contains(image, "RUN") {
		t.Errorf("the image of the Dockerfile has more than its first stage made:\n%s", image)
	}
}
