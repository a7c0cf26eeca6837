/**
 * The files of `deploy/` match the code: metrics, labels and values of the dashboard and the alert
 * rules exist, and samples use existing settings, ports and probes, with limits for streams and
 * bodies that fit the settings.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv } from 'ajv';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { startupBanner } from '../src/cli/server-start.ts';
import { type Config, loadConfig } from '../src/config/config.ts';
import { usdToNano } from '../src/core/money.ts';
import { METRICS } from '../src/observability/metric-list.ts';
import type { MetricInfo } from '../src/observability/metrics.ts';
import { ROOT, filesBelow, readText } from './tidy/source-tree.ts';

interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { h: number; w: number; x: number; y: number };
  targets?: { refId: string; expr: string; legendFormat: string }[];
}
interface Dashboard {
  uid: string;
  schemaVersion: number;
  templating: { list: { name: string; definition?: string }[] };
  panels: Panel[];
}
interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string };
}

/** Labels that Prometheus and the aggregation of workers add to every series. */
const OUTER_LABELS = ['job', 'instance', 'worker'];

describe('the dashboard', () => {
  const board = JSON.parse(readText('deploy/grafana/farebox.json')) as Dashboard;
  const panels = board.panels.filter(({ type }) => type !== 'row');
  const expressions = panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }): [string, string] => [title, expr]),
  );

  test('has panels with a title, a description and queries, on a grid without overlaps', () => {
    assert.ok(board.schemaVersion >= 36 && panels.length > 30);
    assert.equal(new Set(board.panels.map(({ id }) => id)).size, board.panels.length);
    for (const { title, description, targets = [] } of panels) {
      assert.ok((description ?? '') !== '' && targets.length > 0, title);
      assert.equal(new Set(targets.map(({ refId }) => refId)).size, targets.length, title);
    }
    const cells = board.panels.flatMap(({ title, gridPos: { x, y, w, h } }) => {
      assert.ok(x + w <= 24, title);
      return Array.from({ length: w * h }, (_, at) => `${x + (at % w)},${y + Math.floor(at / w)}`);
    });
    assert.equal(new Set(cells).size, cells.length, 'two panels share a place');
  });

  test('uses existing metrics, labels and values, and its own variables', () => {
    const variables = new Set(board.templating.list.map(({ name }) => name));
    for (const [title, expr] of expressions) {
      assert.deepEqual(wrongOf(expr), [], `${title}: ${expr}`);
      for (const [, name = ''] of expr.matchAll(/\$(\w+)/g)) {
        assert.ok(variables.has(name) || name === '__rate_interval', `${title}: $${name}`);
      }
    }
    for (const { definition } of board.templating.list) {
      const asked = /^label_values\((.+), \w+\)$/.exec(definition ?? 'label_values(up, job)')?.[1];
      assert.deepEqual(wrongOf(asked ?? 'unreadable'), []);
    }
  });

  test('shows every metric', () => {
    const all = expressions.map(([, expr]) => expr).join('\n');
    const missing = Object.values(METRICS).filter(({ name }) => !all.includes(name));
    assert.deepEqual(
      missing.map(({ name }) => name),
      [],
    );
  });
});

describe('the alert rules', () => {
  const { groups } = parse(readText('deploy/prometheus/alerts.yaml')) as {
    groups: { name: string; rules: Rule[] }[];
  };
  const rules = groups.flatMap((group) => group.rules);

  test('have a unique name, a severity and a description', () => {
    assert.ok(rules.length > 9);
    assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
    for (const { alert, for: held = '1m', labels, annotations } of rules) {
      assert.match(alert, /^Farebox[A-Za-z]+$/);
      assert.match(held, /^\d+[smh]$/);
      assert.match(labels.severity, /^(?:warning|critical)$/);
      assert.ok(annotations.summary !== '' && annotations.description !== '', alert);
    }
  });

  test('use existing metrics, labels and values, also in their descriptions', () => {
    for (const { alert, expr, annotations } of rules) {
      assert.deepEqual(wrongOf(expr), [], `${alert}: ${expr}`);
      const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) =>
        list.split(', '),
      );
      for (const [, label = ''] of annotations.description.matchAll(/\$labels\.(\w+)/g)) {
        assert.ok([...grouped, 'instance'].includes(label), `${alert}: $labels.${label}`);
      }
    }
  });

  test('report scheduled backups of which none has ever succeeded, whose time is 0', () => {
    const { expr = '' } = rules.find(({ alert }) => alert === 'FareboxBackupOld') ?? {};
    assert.doesNotMatch(expr, /[><] 0\b/);
    assert.match(expr, /^time\(\) - max .*> 2 \* 86400$/);
  });

  test('are each explained on the page about monitoring', () => {
    const told = [
      ...readText('docs/operate/monitoring.md').matchAll(/^\| `(Farebox[A-Za-z]+)`/gm),
    ].map(([, name]) => name);
    assert.deepEqual(
      told,
      rules.map(({ alert }) => alert),
    );
  });
});

describe('the Helm chart', () => {
  const chart = 'deploy/helm/farebox';
  const values = parse(readText(`${chart}/values.yaml`)) as Values;
  const templates = filesBelow(`${chart}/templates`);
  const text = templates.map(readText).join('\n');
  const hasHelm = spawnSync('helm', ['version']).status === 0;
  const hasKubeconform = spawnSync('kubeconform', ['-v']).status === 0;

  test('has the version of the package', () => {
    const { version, appVersion } = parse(readText(`${chart}/Chart.yaml`)) as Record<
      string,
      string
    >;
    const own = (JSON.parse(readText('package.json')) as { version: string }).version;
    assert.deepEqual([version, appVersion], [own, own]);
  });

  test('uses each value, and only values that `values.yaml` explains and the schema allows', () => {
    const schema = JSON.parse(readText(`${chart}/values.schema.json`)) as object;
    const validate = new Ajv({ strict: true }).compile(schema);
    assert.ok(validate(values), JSON.stringify(validate.errors));
    assert.ok(!validate({ ...values, replica: 2 }), 'an unknown value is an error');
    assert.ok(!validate({ ...values, replicas: 0 }));
    const used = [...text.matchAll(/\.Values\.([\w.]+)/g)].map(([, path = '']) => path);
    for (const path of used) {
      const value = path.split('.').reduce<unknown>((part, key) => (part as Values)[key], values);
      assert.notEqual(value, undefined, path);
    }
    const unused = Object.entries(values).flatMap(([name, value]) => {
      if (used.includes(name)) return [];
      const keys = Object.keys(value as Values).map((key) => `${name}.${key}`);
      return keys.filter((key) => !used.includes(key));
    });
    assert.deepEqual(unused, []);
  });

  test('starts the server with a valid configuration, on its port, with its probes and volumes', async () => {
    const config = await configOf(stringify(values['config']));
    assert.deepEqual([config.listen.host, config.listen.port], ['0.0.0.0', 8402]);
    assert.ok(Number(values['terminationGracePeriodSeconds']) > config.http.drainSeconds);
    assert.equal(text.match(/path: \/livez/g)?.length, 2);
    assert.equal(text.match(/path: \/readyz/g)?.length, 1);
    assert.equal(text.match(/containerPort: 8402/g)?.length, 1);
    const read = readText('docs/reference/config.md');
    for (const name of ['FAREBOX_CONFIG', 'FAREBOX_DATA', 'PORT']) {
      assert.ok(text.includes(`name: ${name}`) && read.includes(`\`${name}\``), name);
    }
    for (const [, name = ''] of readText('docs/operate/deploy.md').matchAll(
      /--from-literal=(\w+)=/g,
    )) {
      assert.ok(JSON.stringify(values['config']).includes(`\${${name}`), name);
    }
  });

  const cases: readonly (readonly [string, readonly string[]])[] = [
    ['one server with SQLite', []],
    ['three servers on PostgreSQL', ['--set', 'replicas=3']],
    [
      'an ingress with TLS and a ServiceMonitor',
      [
        '--set',
        'ingress.enabled=true,ingress.tlsSecret=cert,serviceMonitor=true,storage.className=ssd',
      ],
    ],
  ];
  // Helm is a program that the packages of the project cannot bring.
  for (const [name, args] of hasHelm ? cases : []) {
    test(`renders ${name}`, () => {
      const lint = spawnSync('helm', ['lint', '--strict', join(ROOT, chart), ...args]);
      assert.equal(lint.status, 0, String(lint.stdout));
      const rendered = spawnSync('helm', ['template', 'farebox', join(ROOT, chart), ...args]);
      assert.equal(rendered.status, 0, String(rendered.stderr));
      const objects = parseAllDocuments(String(rendered.stdout)).map((document) => {
        assert.deepEqual(document.errors, []);
        return document.toJS() as Manifest;
      });
      checkManifests(objects, args.includes('replicas=3'));
      if (!hasKubeconform) return;
      const strict = ['-strict', '-ignore-missing-schemas'];
      const checked = spawnSync('kubeconform', strict, { input: rendered.stdout });
      assert.equal(checked.status, 0, String(checked.stdout));
    });
  }
});

type Values = Record<string, unknown>;

function checkManifests(objects: readonly Manifest[], areSeveral: boolean): void {
  const server = objects.find(({ kind }) => kind === 'StatefulSet');
  const pod = server?.spec?.template?.spec;
  const container = pod?.containers[0];
  const services = objects.filter(({ kind }) => kind === 'Service');
  assert.equal(services.length, 2);
  for (const { spec } of services) {
    assert.equal(spec?.ports?.[0]?.targetPort, container?.ports[0]?.name);
  }
  assert.ok(services.some(({ metadata }) => metadata?.name === server?.spec?.serviceName));
  assert.equal(
    objects.some(({ kind }) => kind === 'PodDisruptionBudget'),
    areSeveral,
  );
  assert.equal(container?.envFrom?.[0]?.secretRef.optional, !areSeveral);
  // A typing error in the Secret must not give each of several servers a database of its own.
  const settings = objects.find(({ kind }) => kind === 'ConfigMap')?.data?.['farebox.yaml'] ?? '';
  assert.equal(settings.includes('sqlite:'), !areSeveral);
  assert.equal(container?.image, 'registry.example.com/farebox:1.0.0');
  assert.equal(pod?.securityContext.runAsNonRoot, true);
  assert.deepEqual(container?.securityContext, {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  });
  const volumes = [...(pod?.volumes ?? []), ...(server?.spec?.volumeClaimTemplates ?? [])].map(
    (volume) => volume.name ?? volume.metadata?.name ?? '',
  );
  const mounts = container?.volumeMounts ?? [];
  assert.deepEqual(new Set(mounts.map(({ name }) => name)), new Set(volumes));
  const variable = (wanted: string) => container?.env.find(({ name }) => name === wanted)?.value;
  const data = variable('FAREBOX_DATA');
  assert.ok(mounts.some(({ mountPath, readOnly }) => mountPath === data && readOnly !== true));
  const config = variable('FAREBOX_CONFIG');
  assert.ok(mounts.some(({ mountPath }) => config === `${mountPath}/farebox.yaml`));
}

test('the trial of an image finds the key that the first start prints', async () => {
  const loaded = await loadConfig({ env: {}, cwd: '/', readFile: async () => '' });
  assert.ok(loaded.ok);
  const secret = 'SVC_ADMIN_KEY_abc';
  const banner = startupBanner(
    'http://127.0.0.1:8402',
    loaded.config,
    {
      accountId: 'acct_1',
      keyId: 'key_1',
      secret,
      creditNano: usdToNano('5'),
      linkSecret: undefined,
    },
    {},
  );
  const [, pattern = ''] = /grep -o '([^']+)'/.exec(readText('.github/try-image.sh')) ?? [];
  assert.equal(new RegExp(pattern).exec(banner)?.[0], secret);
});

test('the image and the chart wait equally long for the migrations of a start', () => {
  const minutes = figure(readText('Dockerfile'), /--start-period=(\d+)m/);
  const probe = readText('deploy/helm/farebox/templates/statefulset.yaml');
  const [period, failures] = [/periodSeconds: (\d+)/, /failureThreshold: (\d+)/];
  assert.equal(minutes * 60, figure(probe, period) * figure(probe, failures));
});

describe('the unit of systemd', () => {
  const unit = readText('deploy/systemd/farebox.service');
  const value = (key: string): string => new RegExp(`^${key}=(.*)$`, 'm').exec(unit)?.[1] ?? '';

  test('writes only its state folder, and waits longer than the server drains', async () => {
    const folder = `/var/lib/${value('StateDirectory')}`;
    assert.equal(value('ProtectSystem'), 'strict');
    assert.ok(value('Environment').includes(`FAREBOX_DATA=${folder}`));
    const { http } = await configOf(readText('deploy/farebox.yaml'));
    assert.ok(Number(value('TimeoutStopSec')) > http.drainSeconds);
    assert.ok(Number(value('LimitNOFILE')) > 2 * http.maxConnections);
    // Compiled JavaScript needs memory that is both writable and executable, so the server would
    // not start with this line.
    assert.equal(value('MemoryDenyWriteExecute'), '');
  });

  test('starts the server again for as long as its database is unreachable', () => {
    assert.equal(value('Restart'), 'on-failure');
    assert.equal(value('StartLimitIntervalSec'), '0');
  });
});

describe('the samples of proxies', () => {
  const nginx = readText('deploy/nginx/farebox.conf');
  const caddy = readText('deploy/caddy/Caddyfile');
  const ENGINE = "engines: { one: { url: 'http://127.0.0.1:1/v1' } }";

  test('forward to the port, accept bodies of the same size, and have longer timeouts than the server', async () => {
    const { listen, http, engines } = await configOf(readText('deploy/farebox.yaml'), ENGINE);
    const longestSeconds = (engines['one']?.totalTimeoutMs ?? Infinity) / 1000;
    const largestBytes = Math.max(http.jsonLimitBytes, http.fileLimitBytes);
    for (const text of [nginx, caddy]) assert.ok(text.includes(`127.0.0.1:${listen.port}`));
    assert.ok(figure(nginx, /client_max_body_size (\d+)m;/) * 1e6 > largestBytes);
    assert.ok(figure(caddy, /max_size (\d+)MB/) * 1e6 > largestBytes);
    assert.ok(figure(nginx, /proxy_read_timeout (\d+)s;/) > longestSeconds);
    assert.ok(figure(caddy, /response_header_timeout (\d+)m/) * 60 > longestSeconds);
  });

  test('do not buffer streams, and end a request if its caller disconnects', () => {
    assert.match(nginx, /^ +proxy_buffering off;$/m);
    assert.match(nginx, /^ +proxy_ignore_client_abort off;$/m);
    assert.doesNotMatch(caddy, /^\s*(?:encode|flush_interval)/m);
  });

  test('hide probes and metrics, and forward the address of the caller', () => {
    for (const path of ['livez', 'readyz', 'metrics']) {
      assert.match(nginx, new RegExp(`location ~ .*\\b${path}\\b`));
      assert.match(caddy, new RegExp(`@inside path .*/${path}\\b`));
    }
    assert.match(nginx, /X-Forwarded-For \$proxy_add_x_forwarded_for;/);
  });
});

function figure(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1]);
}

interface Named {
  name?: string;
  metadata?: { name: string };
}
interface Manifest {
  kind?: string;
  metadata?: { name: string };
  data?: Record<string, string>;
  spec?: {
    serviceName?: string;
    ports?: { targetPort: string }[];
    volumeClaimTemplates?: Named[];
    template?: {
      spec: {
        securityContext: { runAsNonRoot: boolean };
        volumes: Named[];
        containers: {
          image: string;
          ports: { name: string }[];
          envFrom?: { secretRef: { optional: boolean } }[];
          env: { name: string; value: string }[];
          securityContext: object;
          volumeMounts: { name: string; mountPath: string; readOnly?: boolean }[];
        }[];
      };
    };
  };
}

/** Loads the text of a configuration file with additional lines. */
async function configOf(text: string, more = ''): Promise<Config> {
  const loaded = await loadConfig({
    env: {},
    cwd: ROOT,
    readFile: async () => `${text}\n${more}\n`,
  });
  assert.ok(loaded.ok, text);
  return loaded.config;
}

test('the check finds a wrong metric, label, value or suffix', () => {
  assert.deepEqual(wrongOf('sum(rate(farebox_request_total[5m]))'), ['farebox_request_total']);
  assert.deepEqual(wrongOf('farebox_requests_total_bucket'), ['farebox_requests_total_bucket']);
  assert.deepEqual(wrongOf('farebox_request_seconds'), ['farebox_request_seconds']);
  assert.deepEqual(wrongOf('farebox_tokens_total{engine="a"}'), ['farebox_tokens_total{engine}']);
  assert.deepEqual(wrongOf('farebox_topup_credits{state="gone"}'), [
    'farebox_topup_credits{state="gone"}',
  ]);
  assert.deepEqual(wrongOf('sum by (code) (farebox_tokens_total)'), ['by (code)']);
});

/** Metrics and labels in a Prometheus expression that the server does not have. */
function wrongOf(expr: string): string[] {
  const series = seriesByName();
  const known = new Set<string>(OUTER_LABELS);
  const wrong: string[] = [];
  for (const [, name = '', selectors = ''] of expr.matchAll(
    /\b(up|(?:farebox|process|nodejs)_\w+)(?:\{([^}]*)\})?/g,
  )) {
    const info = series.get(name);
    if (info === undefined) {
      wrong.push(name);
      continue;
    }
    for (const label of info.labels) known.add(label);
    for (const [, label = '', operator, value = ''] of selectors.matchAll(
      /(\w+)(=~|!~|!=|=)"([^"]*)"/g,
    )) {
      if (OUTER_LABELS.includes(label)) continue;
      if (!info.labels.includes(label)) wrong.push(`${name}{${label}}`);
      // The help of these metrics lists their label values.
      else if (VALUES_IN_HELP.includes(label) && operator?.startsWith('=') === true) {
        const missing = value.split('|').filter((one) => !info.help.includes(`\`${one}\``));
        if (missing.length > 0) wrong.push(`${name}{${label}="${missing.join('|')}"}`);
      }
    }
  }
  for (const [, list = ''] of expr.matchAll(/\bby \(([^)]*)\)/g)) {
    const missing = list.split(', ').filter((label) => !known.has(label));
    if (missing.length > 0) wrong.push(`by (${missing.join(', ')})`);
  }
  return wrong;
}

const VALUES_IN_HELP = ['state', 'currency', 'kind', 'percentile', 'result'];

/** Names of the series: a histogram has three. */
function seriesByName(): ReadonlyMap<string, Pick<MetricInfo, 'labels' | 'help'>> {
  const series = new Map<string, Pick<MetricInfo, 'labels' | 'help'>>([
    ['up', { labels: [], help: '' }],
  ]);
  for (const info of Object.values<MetricInfo>(METRICS)) {
    if (info.type !== 'histogram') series.set(info.name, info);
    else {
      series.set(`${info.name}_bucket`, { ...info, labels: [...info.labels, 'le'] });
      series.set(`${info.name}_sum`, info);
      series.set(`${info.name}_count`, info);
    }
  }
  return series;
}
