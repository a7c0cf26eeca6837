/**
 * What a run gives back, and the sentences of the items that Farebox answers itself.
 */
import { Readable } from 'node:stream';
import { Fault } from '../core/faults.ts';
import type { ParsedRequest } from './parse-request.ts';
import type { AttemptFault } from './node-attempt.ts';
import type { UpstreamFault } from './classify.ts';

export interface RpcAnswer {
  /** `abandoned`: the caller left while a node worked; the full price is due, nobody reads. */
  readonly kind: 'answered' | 'abandoned';
  /** The whole body, or its first bytes when `rest` is there. */
  readonly body: Buffer;
  /** What follows `body`; it fails when the node breaks off. Destroy it when the caller leaves. */
  readonly rest: Readable | undefined;
  /** Credits due for the answer, for the header and for the settle. */
  readonly credits: number;
  /** Questions to nodes beyond the first, for `x-retry-count`. */
  readonly retries: number;
}

const INTERNAL_ERROR_CODE = -32603;
const INVALID_REQUEST_CODE = -32600;

/** Why nobody answered, for whoever asked: it names no node and repeats no word of one. */
const REASONS: Readonly<Record<UpstreamFault, string>> = {
  transport: 'The connection to the node failed',
  timeout: 'No node answered in time; ask for less in one request',
  unread:
    'The node closed the connection before it had read the request; send smaller parameters or batches',
  quota: 'The nodes take no further request at the moment; try again later',
  auth: 'The nodes do not serve this service at the moment; its operator can tell why',
  broken: 'What the node sent is no answer to the request',
  refused: 'The node refused this request',
  'too-large': 'The answer is larger than the limit of this service; ask for less',
  'request-too-large': 'No node takes a request of this size; send smaller parameters',
};

/** Code and message of an item that no node answered. */
export function errorOf(fault: UpstreamFault = 'broken'): readonly [code: number, text: string] {
  const reason = REASONS[fault];
  if (fault === 'refused') return [INVALID_REQUEST_CODE, reason];
  const code = fault === 'request-too-large' ? INVALID_REQUEST_CODE : INTERNAL_ERROR_CODE;
  return [code, `${reason}; it was not billed`];
}

/** What an item with an error costs, and a success whose id matches no request. */
const ERROR_ITEM_CREDITS = 5;

/** Credits that an item costs after it ended; `unknown-id` is a success for another request. */
export function itemCredits(
  outcome: 'success' | 'error' | 'unknown-id' | 'unanswered',
  fullCredits: number,
): number {
  if (outcome === 'success') return fullCredits;
  // A success is never cheaper than an error: the smallest tier is 20 credits.
  return outcome === 'unanswered' ? 0 : ERROR_ITEM_CREDITS;
}

/** Every node takes less than what was sent; `limitBytes` is the most that one is known to take. */
export function requestTooLarge(parsed: ParsedRequest, limitBytes: number | undefined): Fault {
  const size = `The request of ${parsed.body.length} bytes is larger than the nodes of ${parsed.network.slug} take`;
  const advice =
    limitBytes === undefined || limitBytes >= parsed.body.length
      ? 'send smaller parameters or batches'
      : `send at most ${limitBytes} bytes`;
  return new Fault('PAYLOAD_TOO_LARGE', { message: `${size}: ${advice}` });
}

/**
 * The fault of a run that no node answered; it names no node. 503 when the network has no node
 * left that could be asked, 504 when the last one took too long, 500 when it failed otherwise.
 */
export function unansweredFault(last: AttemptFault | undefined, isAnyOpen: boolean): Fault {
  if (last === undefined) return new Fault('RPC_NETWORK_UNAVAILABLE');
  const { fault } = last;
  if (fault === 'timeout') return new Fault('RPC_TIMEOUT');
  // Of a large answer, the size is the matter whatever became of the node.
  if (!isAnyOpen && fault !== 'too-large') return new Fault('RPC_NETWORK_UNAVAILABLE');
  return new Fault('RPC_UPSTREAM_FAILED', { message: REASONS[fault] });
}

/**
 * The same bytes as `rest`, but the last of them leave only after `beforeEnd` resolved: an answer
 * is settled before it is complete. `seen` gets every chunk on its way. When `rest` or `beforeEnd`
 * fails, so does the result.
 */
export function holdLastBytes(
  rest: Readable,
  beforeEnd: () => Promise<void>,
  seen: (chunk: Buffer) => void = () => undefined,
): Readable {
  const held = Readable.from(allButLast(rest, beforeEnd, seen), { objectMode: false });
  // A generator that was never read does not run its own end.
  held.once('close', () => rest.destroy());
  return held;
}

async function* allButLast(
  rest: AsyncIterable<Buffer>,
  beforeEnd: () => Promise<void>,
  seen: (chunk: Buffer) => void,
): AsyncGenerator<Buffer> {
  let last: Buffer | undefined;
  for await (const chunk of rest) {
    seen(chunk);
    if (last !== undefined) yield last;
    last = chunk;
  }
  await beforeEnd();
  if (last !== undefined) yield last;
}
