/** Generates the reference page of the metrics from `observability/metric-list.ts`. */
import { METRICS } from '../../src/observability/metric-list.ts';

const INTRODUCTION = `# Metrics

<!-- prettier-ignore-start -->

_Generated from \`src/observability/metric-list.ts\` by \`npx node scripts/write-reference.ts\`._

This page lists every metric of \`GET /metrics\`, which returns the Prometheus text format. \`metrics.enabled: false\`
turns the route off. With \`metrics.token\`, a request needs \`Authorization: Bearer <token>\`. The route is outside
\`/api/v1\`: let only your own network reach it, or set a token.

Labels contain routes, models and engines of the configuration, never values from callers. After 1,000 label sets
of one metric, further sets are counted as \`other\`. Values belong to this process, except holds, debts and credits
of wallet payments, which come from the database.
`;

/** The whole page as Markdown. */
export function metricsPage(): string {
  const rows = Object.values(METRICS).map(({ name, type, labels, help }) => {
    const shown = labels.map((label) => `\`${label}\``).join(' ');
    return `| \`${name}\` | ${type} | ${shown} | ${help} |`;
  });
  const head = '| metric | kind | labels | meaning |\n| --- | --- | --- | --- |';
  return `${INTRODUCTION}\n${head}\n${rows.join('\n')}\n\n<!-- prettier-ignore-end -->\n`;
}
