/** The next step of the operator after a failed request, by its last failed try or its error code. */
import type { FaultCode } from '../../core/faults.ts';
import type { RequestTry } from '../../core/request-tries.ts';

type Tried = Pick<RequestTry, 'engine' | 'target' | 'status'>;

/** By the class of failure of an engine (`FailureReason`). */
const ENGINE_STEPS: Readonly<Record<string, (tried: Tried) => string>> = {
  unreachable: ({ engine }) =>
    `Start the engine ${engine}, or correct engines.${engine}.url; "farebox check" tests the connection`,
  timeout: ({ engine }) =>
    `Check the load of the engine ${engine}: it did not respond within its time limits (engines.${engine}.firstByteTimeoutMs, idleTimeoutMs and totalTimeoutMs)`,
  overloaded: ({ engine, target }) =>
    `Add a replica of ${target}, or reduce the load of the engine ${engine}: it has no free capacity`,
  refused: ({ engine }) =>
    `Compare the parameters with those that the engine ${engine} accepts; its message names the reason`,
  misconfigured: ({ engine, target, status }) =>
    `Correct apiKey, url or balance of the engine ${engine}, or the model name ${target} of the replica: the engine responded with HTTP ${status ?? 'an error'}`,
  unsupported: ({ engine }) =>
    `Use another engine for this kind of work: ${engine} does not offer its path`,
  failed: ({ engine }) =>
    `Read the log of the engine ${engine} at the time of the try: it reported an internal error`,
  broken: ({ engine }) =>
    `Read the log of the engine ${engine} for a crash or a lack of memory: it closed the connection within its response`,
  garbage: ({ engine }) =>
    `Correct engines.${engine}.url and protocol: the response was not of the requested kind`,
  'too-large': ({ engine }) => `Check the engine ${engine}: its response exceeded the size limit`,
};

/** By the fault of a node (`UpstreamFault`). */
const NODE_STEPS: Readonly<Record<string, (tried: Tried) => string>> = {
  transport: ({ engine, target }) =>
    `Check the node ${engine} of ${target}: the connection failed, or it serves another chain; "farebox check" tests each node`,
  timeout: ({ engine, target }) =>
    `Check the load of the node ${engine} of ${target}, or raise its timeoutMs`,
  quota: ({ engine, target }) =>
    `Raise the quota of the node ${engine}, or add a node to rpc.networks.${target}.upstreams`,
  auth: ({ engine }) => `Correct the key of the node ${engine}: it rejected the credentials`,
  broken: ({ engine }) => `Check the node ${engine}: its response is not valid JSON-RPC`,
  stray: ({ engine }) =>
    `Check the proxy in front of the node ${engine}: it sent the response of another call`,
  unread: ({ engine }) => `Raise the size limit of the node ${engine} for requests`,
  'request-too-large': ({ engine }) => `Raise the size limit of the node ${engine} for requests`,
  refused: ({ engine }) => `Read the log of the node ${engine}: it rejected the request`,
  'too-large': () => 'Raise rpc.maxReplyBytes, or let the caller request less data at once',
  'lacks-method': ({ engine }) => `Add a node that offers the method; the node ${engine} does not`,
  'lacks-data': ({ engine, target }) =>
    `Add an archive node to rpc.networks.${target}.upstreams: the node ${engine} lacks the data`,
  'lacks-capacity': ({ engine }) =>
    `Check the load of the node ${engine}: it gave up before the result was complete`,
};

const NO_CREDIT =
  'Add credit with "farebox credit <USD> --account <account>", or wait for a top-up';
const PAYMENT =
  'Nothing, unless many payments fail: then "farebox check" tests the nodes and keys of the chains';
const NODES_OR_KEY =
  'Run "farebox check": the nodes of the chain must respond, and the key needs funds for fees';
const ENGINE =
  'Read the log of the server and that of the engine at the time of the request: the engine sent no usable response';
const RPC_NODES = 'Run "farebox check": it tests each node in rpc.networks';
const OF_CALLER = 'Nothing: the caller has to correct the request';

/** By the error code, for requests without a failed try that explains them. */
const CODE_STEPS: Partial<Record<FaultCode, string>> = {
  AUTHENTICATION_FAILED:
    'Nothing, unless the caller should have access: "farebox keys list" shows the keys of an account',
  AUTHENTICATION_FAILED_INACTIVE_KEY:
    'Create a new key with "farebox keys create": this one is revoked or expired',
  API_ACCESS_DISABLED:
    'Run "farebox accounts update <account> --enable" to accept its requests again',
  MODEL_NOT_ALLOWED: 'Add the model to the models of the key, if it may use the model',
  REGION_NOT_ALLOWED: 'Correct the region restrictions of the model, if the region is allowed',
  MODEL_NOT_FOUND: 'Add the model, or an alias with this name, to models in farebox.yaml',
  INSUFFICIENT_BALANCE: NO_CREDIT,
  PAYMENT_REQUIRED: 'Nothing: the response is the price for a caller without an account',
  CREDIT_HELD: 'Nothing: the credit is reserved by running requests and free again when they end',
  API_KEY_USD_SPEND_LIMIT_EXCEEDED:
    'Raise the spend limit of the key, or the budget that the message names',
  API_KEY_DIEM_SPEND_LIMIT_EXCEEDED:
    'Raise the spend limit of the key, or the budget that the message names',
  RATE_LIMIT_EXCEEDED:
    'Raise the limit with "farebox accounts limit" or "farebox keys limit", or in limits.plans, if the caller should send more',
  FAILED_REQUESTS:
    'Read the earlier errors of this caller: too many of its requests failed; limits.guard sets the number',
  X402_CONCURRENCY_LIMIT: 'Raise limits.walletConcurrency, if wallets should send more at once',
  IDEMPOTENCY_STORAGE_FULL: 'Nothing: the account has stored too many responses for retries',
  MODEL_OFFLINE: 'Check the engines of the model on the page Engines; "farebox check" tests each',
  MODEL_OVERLOADED:
    'Add a replica, or raise concurrency and maxQueued of the engine: its queue was full',
  MODEL_AT_CAPACITY: 'Add a replica, or raise concurrency of the engine',
  INFERENCE_FAILED: ENGINE,
  ASR_UPSTREAM_FAILED: ENGINE,
  RPC_TIMEOUT: RPC_NODES,
  RPC_UPSTREAM_FAILED: RPC_NODES,
  RPC_NETWORK_UNAVAILABLE: 'Add a node to the network in rpc.networks: none is healthy',
  SERVICE_UNAVAILABLE:
    'Check the database and its disk: /readyz names the failed part, and the log its reason',
  SHUTTING_DOWN: 'Nothing: the server was stopped, and the caller sends the request again',
  UNKNOWN_ERROR: 'Report the defect with the stack that the log contains for this request id',
  SETTLEMENT_PENDING: 'Nothing: the server reads the chain until the payment is credited or fails',
  SETTLEMENT_TIMEOUT: NODES_OR_KEY,
  SETTLEMENT_FAILED: NODES_OR_KEY,
  PAYMENT_VERIFICATION_FAILED: PAYMENT,
  X402_NOT_CONFIGURED: 'Configure payments in farebox.yaml, if wallets should pay',
  CHECKOUT_NOT_CONFIGURED:
    'Configure payments.stripe in farebox.yaml, if callers should pay by card',
  PAYMENT_PROVIDER_UNAVAILABLE:
    'Read the reason in the log of the server: the card processor did not respond, or rejected its key',
  OPERATOR_KEY_REQUIRED: 'Run "farebox accounts update <account> --operator", if it is an operator',
  UNSUPPORTED_RPC_NETWORK: 'Add the network to rpc.networks, if it should be offered',
  FETCH_FAILED: 'Nothing, unless all addresses fail: then check the outgoing connection and proxy',
  REQUEST_TIMEOUT: 'Check the load of the engines of the model, and their time limits',
};

export function operatorStep(
  { route, message }: { readonly route: string; readonly message: string },
  code: FaultCode | undefined,
  tries: readonly RequestTry[],
): string {
  if (code === 'SERVICE_UNAVAILABLE' && message.startsWith('The payment')) return NODES_OR_KEY;
  const last = tries.findLast(({ result }) => result !== 'ok');
  // An embedded engine responds with 503 until its model is there.
  if (code === 'MODEL_OFFLINE' && last?.result === 'overloaded') {
    return 'Wait for the download of the model: the log has its progress, and the reason if it fails';
  }
  // A node and an engine have failures of the same name.
  const steps = route.includes('rpc') ? NODE_STEPS : ENGINE_STEPS;
  const ofTry = last && steps[last.result]?.(last);
  if (code === undefined) {
    if (ofTry === undefined) return 'Nothing: the request has succeeded';
    return `${ofTry}. This request has succeeded at another try`;
  }
  return ofTry ?? CODE_STEPS[code] ?? OF_CALLER;
}
