/** The reference page of the metrics, made from their list in `observability/metric-list.ts`. */
import { METRICS } from '../../src/observability/metric-list.ts';

const INTRODUCTION = `# Metrics

<!-- prettier-ignore-start -->

_Generated from the metrics themselves by \`npx node scripts/write-reference.ts\`._

\`GET /metrics\` gives them in the Prometheus text format. \`metrics.enabled\` turns the page off,
\`metrics.token\` asks for \`Authorization: Bearer <token>\`. The page lies outside \`/api/v1\`: let
only your own network reach it, or set a token.

Labels are bounded: they hold routes, models and engines of the configuration, never what a caller
sent, and past 1000 label sets of one metric the rest is counted as \`other\`. Values are those of
this process; holds, debts and the credits of wallet payments are those of the database.
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
