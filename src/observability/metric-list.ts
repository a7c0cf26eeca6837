/**
 * Every metric of the server: name, kind, labels, meaning. `docs/reference/metrics.md` is generated
 * from this list. Labels contain configured values only, never text from requests.
 */
import type { MetricInfo } from './metrics.ts';

type Of = (name: string, labels: readonly string[], help: string) => MetricInfo;
const counter: Of = (name, labels, help) => ({ name, type: 'counter', labels, help });
const gauge: Of = (name, labels, help) => ({ name, type: 'gauge', labels, help });
const shared: Of = (name, labels, help) => ({ ...gauge(name, labels, help), isShared: true });
const histogram: Of = (name, labels, help) => ({ name, type: 'histogram', labels, help });

export const METRICS = {
  requests: counter(
    'farebox_requests_total',
    ['method', 'route', 'status'],
    'Requests that have ended, by route pattern and status.',
  ),
  requestSeconds: histogram(
    'farebox_request_seconds',
    ['route'],
    'Time from the head of a request to the end of its response.',
  ),
  requestsOpen: gauge('farebox_requests_open', [], 'Requests that have not ended.'),
  refusals: counter(
    'farebox_refusals_total',
    ['code'],
    'Error responses, by the code of the error catalogue.',
  ),
  firstToken: histogram(
    'farebox_first_token_seconds',
    ['model'],
    'Time from the call of an engine to the first byte of its response.',
  ),
  tokens: counter(
    'farebox_tokens_total',
    ['model', 'kind'],
    'Tokens that were billed: `prompt`, `completion`, and of these `cached`, `cache_write`, `reasoning`.',
  ),
  charged: counter(
    'farebox_charged_usd_total',
    ['kind', 'model', 'currency'],
    'Money charged, exact to a nano-USD, by kind of work and currency (`usd`, `diem`).',
  ),
  settled: counter(
    'farebox_settled_total',
    ['kind', 'status'],
    'Priced requests that were settled: `completed`, `aborted`, `failed`.',
  ),
  holdsOpen: gauge('farebox_holds_open', [], 'Open holds of the requests of this process.'),
  holdsUsd: gauge('farebox_holds_usd', [], 'Money that these set aside, in USD.'),
  jobHoldsOpen: shared(
    'farebox_job_holds_open',
    [],
    'Open holds of queued jobs, which are in the database.',
  ),
  jobHoldsUsd: shared('farebox_job_holds_usd', [], 'Money that those of jobs set aside, in USD.'),
  leasedUsd: shared(
    'farebox_leased_usd',
    [],
    'Money that processes which share a PostgreSQL have leased for their requests, in USD.',
  ),
  debtsUsd: shared(
    'farebox_debts_usd',
    [],
    'Debts of accounts after reversals of credit that was already spent, in USD.',
  ),
  topUps: shared(
    'farebox_topup_credits',
    ['state'],
    'Credits of wallet payments: `watched` (the chain could still undo them), `vanished` (not on the chain now), `reversed` (since the beginning).',
  ),
  networkReady: gauge(
    'farebox_payment_network_ready',
    ['network'],
    '1 if payments on the network can be settled: its nodes respond, and the gas key can pay.',
  ),
  nodeContradictions: counter(
    'farebox_node_contradictions_total',
    ['network'],
    'Responses about payments in which nodes of a network contradict each other; no payment is credited or given up on them. Nodes that differ by one block cause a few.',
  ),
  batches: shared('farebox_batches', ['state'], 'Batches that have not ended, by their state.'),
  batchRequests: counter(
    'farebox_batch_requests_total',
    ['result'],
    'Requests of batches that this process ended: `completed` with a response, `failed` with an error.',
  ),
  databaseUp: gauge(
    'farebox_database_up',
    [],
    '1 while the database responds and its disk accepts writes.',
  ),
  backupSuccess: shared(
    'farebox_backup_last_success_timestamp_seconds',
    [],
    'Unix time of the last successful backup to `backup.to`. Without one: 0 if backups are scheduled, otherwise no value.',
  ),
  journal: gauge(
    'farebox_settle_journal_entries',
    [],
    'Settles in the local journal that wait for the database.',
  ),
  modelsOffered: gauge('farebox_models', [], 'Models on offer.'),
  modelLosses: gauge(
    'farebox_model_losses',
    ['model', 'engine'],
    'Prices of a model that are below the configured cost of the supplier.',
  ),
  customerLosses: shared(
    'farebox_customer_losses',
    ['customer', 'model'],
    'Own prices of a plan (`plan:<name>`) or an account that are below the configured cost of the supplier, as of the last minute.',
  ),
  modelsReady: gauge('farebox_models_ready', [], 'Models that an engine can run now.'),
  engineInFlight: gauge('farebox_engine_in_flight', ['engine'], 'Calls that run on an engine.'),
  engineQueued: gauge(
    'farebox_engine_queued',
    ['engine'],
    'Calls that wait for a slot of an engine.',
  ),
  engineConnections: gauge('farebox_engine_connections', ['engine'], 'Open sockets to an engine.'),
  engineKeepAlive: gauge(
    'farebox_engine_keep_alive',
    ['engine'],
    '1 when connections to an engine serve more than one request, 0 since it sent bytes that belong to no request.',
  ),
  replicaHealthy: gauge(
    'farebox_replica_healthy',
    ['engine', 'model'],
    '1 while a model on an engine takes calls.',
  ),
  replicaBreaker: gauge(
    'farebox_replica_breaker',
    ['engine', 'model', 'state'],
    '1 for the state of the circuit breaker: `closed`, `open`, `half-open`.',
  ),
  replicaCalls: counter(
    'farebox_replica_calls_total',
    ['engine', 'model'],
    'Calls since the engine was configured.',
  ),
  replicaFailures: counter(
    'farebox_replica_failures_total',
    ['engine', 'model'],
    'Failed calls since the engine was configured.',
  ),
  rpcCalls: counter(
    'farebox_rpc_calls_total',
    ['network', 'node', 'class', 'result'],
    'JSON-RPC calls that a node was sent, by class of the method (`standard`, `advanced`, `large`, `write`) and result: `success`, `error` (of the call), `lacking` (the node lacks the method, block, state or history, or reports an internal error), `fault` (of the node). Node `cache`: results from the cache or from a concurrent call.',
  ),
  rpcCallSeconds: histogram(
    'farebox_rpc_call_seconds',
    ['network', 'node', 'class'],
    'Time from a request to a node to its response, or to the first bytes of a response above 1 MiB. A batch counts once, in the class of its first call.',
  ),
  rpcCredits: counter(
    'farebox_rpc_credits_total',
    ['network', 'node', 'class'],
    'RPC credits of the results that callers received, by the node that returned them.',
  ),
  rpcFailovers: counter(
    'farebox_rpc_failovers_total',
    ['network', 'node', 'class'],
    'JSON-RPC calls that went to another node after this node returned no final result.',
  ),
  rpcHedges: counter(
    'farebox_rpc_hedges_total',
    ['network', 'node', 'class'],
    'JSON-RPC reads that also went to another node because this node was slower than usual.',
  ),
  rpcLag: gauge(
    'farebox_rpc_lag_blocks',
    ['network', 'node'],
    'Blocks by which a JSON-RPC node is behind the newest block that most nodes have; negative if it is ahead.',
  ),
  chores: counter(
    'farebox_chores_total',
    ['result'],
    'Background chores that ran: `done`, `failed`.',
  ),
  unhandledRejections: counter(
    'farebox_unhandled_rejections_total',
    [],
    'Unhandled promise rejections: a defect of this server or of a library. The log has the stack.',
  ),
  draining: gauge('farebox_draining', [], '1 while the server shuts down.'),
  spansSent: counter('farebox_trace_spans_sent_total', [], 'Spans that a collector took.'),
  spansDropped: counter(
    'farebox_trace_spans_dropped_total',
    [],
    'Spans that were dropped because the queue was full or the collector refused them.',
  ),
  loopDelay: gauge(
    'farebox_event_loop_delay_seconds',
    ['percentile'],
    'Delay of the event loop over the last whole minute: `50`, `99`, `100`.',
  ),
  build: gauge('farebox_build_info', ['version', 'node'], 'Always 1.'),
  cpu: counter('process_cpu_seconds_total', [], 'CPU time of the process, user and system.'),
  resident: gauge('process_resident_memory_bytes', [], 'Memory of the process.'),
  heapUsed: gauge('nodejs_heap_size_used_bytes', [], 'Used heap of JavaScript.'),
  external: gauge('nodejs_external_memory_bytes', [], 'Buffers outside the heap.'),
  started: gauge('process_start_time_seconds', [], 'Unix time of the start.'),
} as const satisfies Record<string, MetricInfo>;
