// The rules and the dashboard of Cronce as a monitoring mixin (https://monitoring.mixins.dev):
//
//   jb install github.com/cronce-io/cronce/deploy@main
//   (import 'github.com/cronce-io/cronce/deploy/mixin.libsonnet') + { _config+:: { cronceSuccessLimits: { backup: 90000 } } }
local rules = std.parseYaml(importstr 'prometheus/cronce.rules.yaml');
local group(name) = [g for g in rules.groups if g.name == name];

{
  _config+:: {
    // How many seconds may pass between two successes of a job, for jobs that matter: see
    // CronceJobNotSucceeded.
    cronceSuccessLimits: {},
  },

  grafanaDashboardFolder:: 'Cronce',
  grafanaDashboards+:: { 'cronce.json': import 'grafana/cronce.json' },

  prometheusRules+:: {
    groups+: group('cronce-records') + (
      if $._config.cronceSuccessLimits == {} then [] else [{
        name: 'cronce-limits',
        rules: [
          { record: 'cronce:job_success_limit_seconds', expr: std.toString(limit.value), labels: { job: limit.key } }
          for limit in std.objectKeysValues($._config.cronceSuccessLimits)
        ],
      }]
    ),
  },

  prometheusAlerts+:: { groups+: group('cronce-alerts') },
}
