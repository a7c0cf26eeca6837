/**
 * Every metric of the server: name, kind, labels, meaning. `docs/reference/metrics.md` is made from
 * this list. Labels hold what the operator configured, never what a caller sent.
 */
import type { MetricInfo } from './metrics.ts';

function info(
  name: string,
  type: MetricInfo['type'],
  labels: readonly string[],
  help: string,
): MetricInfo {
  return { name, type, labels, help };
}

export const METRICS = {
  requests: info(
    'farebox_requests_total',
    'counter',
    ['method', 'route', 'status'],
    'Requests that have ended, by route pattern and status.',
  ),
  requestSeconds: info(
    'farebox_request_seconds',
    'histogram',
    ['route'],
    'Time from the head of a request to the end of its answer.',
  ),
  requestsOpen: info('farebox_requests_open', 'gauge', [], 'Requests that have not ended.'),
  refusals: info(
    'farebox_refusals_total',
    'counter',
    ['code'],
    'Answers that were errors, by the code of the error catalogue.',
  ),
  firstToken: info(
    'farebox_first_token_seconds',
    'histogram',
    ['model'],
    'Time from the call of an engine to the first byte of its answer.',
  ),
  tokens: info(
    'farebox_tokens_total',
    'counter',
    ['model', 'kind'],
    'Tokens that were billed: `prompt`, `completion`, and of these `cached`, `cache_write`, `reasoning`.',
  ),
  charged: info(
    'farebox_charged_usd_total',
    'counter',
    ['kind', 'model', 'currency'],
    'Money charged, exact to a nano-USD, by kind of work and currency (`usd`, `diem`).',
  ),
  settled: info(
    'farebox_settled_total',
    'counter',
    ['kind', 'status'],
    'Priced requests that were settled: `completed`, `aborted`, `failed`.',
  ),
  holdsOpen: info('farebox_holds_open', 'gauge', [], 'Open holds in the database.'),
  holdsUsd: info('farebox_holds_usd', 'gauge', [], 'Money set aside by open holds, in USD.'),
  debtsUsd: info(
    'farebox_debts_usd',
    'gauge',
    [],
    'What accounts owe after credits were reversed that they had spent, in USD.',
  ),
  topUps: info(
    'farebox_topup_credits',
    'gauge',
    ['state'],
    'Credits of wallet payments: `watched` (the chain could still undo them), `vanished` (not on the chain now), `reversed` (since the beginning).',
  ),
  databaseUp: info('farebox_database_up', 'gauge', [], '1 while the database answers.'),
  journal: info(
    'farebox_settle_journal_entries',
    'gauge',
    [],
    'Settles in the local journal that wait for the database.',
  ),
  modelsOffered: info('farebox_models', 'gauge', [], 'Models on offer.'),
  modelsReady: info('farebox_models_ready', 'gauge', [], 'Models that an engine can run now.'),
  engineInFlight: info(
    'farebox_engine_in_flight',
    'gauge',
    ['engine'],
    'Calls that run on an engine.',
  ),
  engineQueued: info(
    'farebox_engine_queued',
    'gauge',
    ['engine'],
    'Calls that wait for a slot of an engine.',
  ),
  engineConnections: info(
    'farebox_engine_connections',
    'gauge',
    ['engine'],
    'Open sockets to an engine.',
  ),
  replicaHealthy: info(
    'farebox_replica_healthy',
    'gauge',
    ['engine', 'model'],
    '1 while a model on an engine takes calls.',
  ),
  replicaBreaker: info(
    'farebox_replica_breaker',
    'gauge',
    ['engine', 'model', 'state'],
    '1 for the state of the circuit breaker: `closed`, `open`, `half-open`.',
  ),
  replicaCalls: info(
    'farebox_replica_calls_total',
    'counter',
    ['engine', 'model'],
    'Calls since the engine was configured.',
  ),
  replicaFailures: info(
    'farebox_replica_failures_total',
    'counter',
    ['engine', 'model'],
    'Failed calls since the engine was configured.',
  ),
  chores: info(
    'farebox_chores_total',
    'counter',
    ['result'],
    'Background chores that ran: `done`, `failed`.',
  ),
  unhandledRejections: info(
    'farebox_unhandled_rejections_total',
    'counter',
    [],
    'Promises that failed with nobody there to hear it: a defect of this server or of a library. The log has the stack.',
  ),
  draining: info('farebox_draining', 'gauge', [], '1 while the server shuts down.'),
  spansSent: info('farebox_trace_spans_sent_total', 'counter', [], 'Spans that a collector took.'),
  spansDropped: info(
    'farebox_trace_spans_dropped_total',
    'counter',
    [],
    'Spans that were dropped because the queue was full or the collector refused them.',
  ),
  loopDelay: info(
    'farebox_event_loop_delay_seconds',
    'gauge',
    ['quantile'],
    'Delay of the event loop over the last whole minute: `0.5`, `0.99`, `1`.',
  ),
  build: info('farebox_build_info', 'gauge', ['version', 'node'], 'Always 1.'),
  cpu: info(
    'process_cpu_seconds_total',
    'counter',
    [],
    'CPU time of the process, user and system.',
  ),
  resident: info('process_resident_memory_bytes', 'gauge', [], 'Memory of the process.'),
  heapUsed: info('nodejs_heap_size_used_bytes', 'gauge', [], 'Used heap of JavaScript.'),
  external: info('nodejs_external_memory_bytes', 'gauge', [], 'Buffers outside the heap.'),
  started: info('process_start_time_seconds', 'gauge', [], 'Unix time of the start.'),
} as const satisfies Record<string, MetricInfo>;

const INTRODUCTION = `# Metrics

<!-- prettier-ignore-start -->

_Generated from the metrics themselves by \`node scripts/write-reference.ts\`._

\`GET /metrics\` gives them in the Prometheus text format. \`metrics.enabled\` turns the page off,
\`metrics.token\` asks for \`Authorization: Bearer <token>\`. The page lies outside \`/api/v1\`: let
only your own network reach it, or set a token.

Labels are bounded: they hold routes, models and engines of the configuration, never what a caller
sent, and past 1000 label sets of one metric the rest is counted as \`other\`. Values are those of
this process; holds, debts and the credits of wallet payments are those of the database.
`;

/** The reference page as Markdown. */
export function metricsPage(): string {
  const rows = Object.values(METRICS).map(({ name, type, labels, help }) => {
    const shown = labels.map((label) => `\`${label}\``).join(' ');
    return `| \`${name}\` | ${type} | ${shown} | ${help} |`;
  });
  const head = '| metric | kind | labels | meaning |\n| --- | --- | --- | --- |';
  return `${INTRODUCTION}\n${head}\n${rows.join('\n')}\n\n<!-- prettier-ignore-end -->\n`;
}
