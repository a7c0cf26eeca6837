/**
 * The files of `deploy/` against the code: the dashboard and the alert rules name metrics, labels
 * and values that the server has.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parse } from 'yaml';
import { METRICS } from '../src/observability/metric-list.ts';
import type { MetricInfo } from '../src/observability/metrics.ts';
import { readText } from './tidy/source-tree.ts';

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

/** What the server of Prometheus and the gathering of workers put on every series. */
const OUTER_LABELS = ['job', 'instance', 'worker'];

describe('the dashboard', () => {
  const board = JSON.parse(readText('deploy/grafana/farebox.json')) as Dashboard;
  const panels = board.panels.filter(({ type }) => type !== 'row');
  const expressions = panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }): [string, string] => [title, expr]),
  );

  test('has panels with titles, words and questions, on a grid without overlaps', () => {
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

  test('names metrics, labels and values that there are, and variables of its own', () => {
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

  test('have a name of their own, a severity and words', () => {
    assert.ok(rules.length > 9);
    assert.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length);
    for (const { alert, for: held = '1m', labels, annotations } of rules) {
      assert.match(alert, /^Farebox[A-Za-z]+$/);
      assert.match(held, /^\d+[smh]$/);
      assert.match(labels.severity, /^(?:warning|critical)$/);
      assert.ok(annotations.summary !== '' && annotations.description !== '', alert);
    }
  });

  test('name metrics, labels and values that there are, in their words too', () => {
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

  test('are explained, each one, on the page of monitoring', () => {
    const told = [
      ...readText('docs/operate/monitoring.md').matchAll(/^\| `(Farebox[A-Za-z]+)`/gm),
    ].map(([, name]) => name);
    assert.deepEqual(
      told,
      rules.map(({ alert }) => alert),
    );
  });
});

test('a wrong metric, label, value or suffix is found', () => {
  assert.deepEqual(wrongOf('sum(rate(farebox_request_total[5m]))'), ['farebox_request_total']);
  assert.deepEqual(wrongOf('farebox_requests_total_bucket'), ['farebox_requests_total_bucket']);
  assert.deepEqual(wrongOf('farebox_request_seconds'), ['farebox_request_seconds']);
  assert.deepEqual(wrongOf('farebox_tokens_total{engine="a"}'), ['farebox_tokens_total{engine}']);
  assert.deepEqual(wrongOf('farebox_topup_credits{state="gone"}'), [
    'farebox_topup_credits{state="gone"}',
  ]);
  assert.deepEqual(wrongOf('sum by (code) (farebox_tokens_total)'), ['by (code)']);
});

/** What of an expression of Prometheus the server does not have. */
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
      // The values of these are those that the help names.
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

/** Names as a scrape finds them: a histogram is three series. */
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
