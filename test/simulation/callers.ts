/** Callers of the server, and the responses that they received. */
import { type Reply, send } from './http.ts';
import type { CallerAccount, ChatSeen, Town } from './town.ts';
import { DefectFound, world } from './world.ts';

const PRICE_NANO = { input: 1_000n, output: 2_000n };
export const MODEL = 'm';
export const EMBEDDING_MODEL = 'e';
/** Limits of keys, and per day of the budget of a `budgeted` caller. */
export const LIMIT_USD = { capped: 0.004, budgeted: 0.04 } as const;
/** Requests per minute to each model, of the key of a `limited` caller. */
export const REQUESTS_PER_MINUTE = 30;
export const BUDGET = { tag: 'team', value: 'red' } as const;
/** The first credit of callers, and of some kinds of them. */
export const CREDIT_USD = '100';
export const LITTLE_CREDIT_USD: Readonly<Record<string, string>> = { poor: '0.001', payer: '0.01' };
/** Small requests get small leases, which are soon empty. Large ones can cost most of their hold. */
const MAX_TOKENS = [4, 60, 400];
const PATIENCE_MS = 90_000;
const DECISION_PATIENCE_MS = 60_000;
/** A caller leaves within a response, or before a lost lease ends, or after most faults. */
const KEYED_PATIENCE_MS = [2_000, 15_000, PATIENCE_MS];
const MAX_TRIES = 30;
const MAX_OPEN = 12;
/** Waits without credit, and without a response. */
const BROKE_MS = 5_000;
const RECONNECT_MS = 500;
const ERROR_EVENT = 'data: {"error"';

export interface ChatKind {
  readonly isEmbedding: boolean;
  readonly isStream: boolean;
  readonly maxTokens: number;
}

interface Chat extends ChatKind {
  readonly key?: string;
  readonly url?: string;
  readonly leaveAfterBytes?: number;
  readonly patienceMs?: number;
}

interface PaidChat extends Chat {
  readonly caller: string;
  /** Headers that identify the caller, or pay. */
  readonly headers: Readonly<Record<string, string>>;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** Sends chats and embeddings until the run is over; some at the same time. */
export async function runCaller(town: Town, account: CallerAccount): Promise<void> {
  const { random } = world();
  const { kind, name, pauseMs } = account;
  let count = 0;
  /** Returns how long the caller waits before its next requests. */
  const sendOne = async (): Promise<number> => {
    const what = chatKind();
    count += 1;
    if (kind === 'keyed') {
      await untilServed(town, account, { ...what, key: `${name.replace(' ', '-')}-${count}` });
      return 0;
    }
    if (kind === 'leaver' && random.once(2)) {
      await sendChat(town, account, { ...what, leaveAfterBytes: random.between(0, 2_000) });
      return 0;
    }
    const reply = await sendChat(town, account, what);
    // As SDKs do: many rejections in a row find little.
    if (reply === undefined) return RECONNECT_MS;
    return reply.status === 402 ? random.between(1, BROKE_MS) : reply.retryAfterMs;
  };
  const open = new Set<Promise<number>>();
  while (!town.isOver) {
    await world().sleep(random.between(1, 2 * pauseMs));
    for (let left = random.once(4) ? random.between(2, 6) : 1; left > 0; left -= 1) {
      const one = sendOne().finally(() => open.delete(one));
      open.add(one);
    }
    if (kind !== 'keyed') await world().sleep(Math.max(...(await Promise.all(open))));
    // A keyed request can last long, while others begin.
    else if (open.size >= MAX_OPEN) await Promise.race(open);
  }
  await Promise.all(open);
}

/** Repeats a request under its key at another server, sometimes at once, until it has a response. */
async function untilServed(town: Town, account: CallerAccount, what: Chat): Promise<void> {
  const { random } = world();
  let url: string | undefined;
  for (let tries = 0; tries < MAX_TRIES && !town.isOver; tries += 1) {
    const patienceMs = random.between(1, random.pick(KEYED_PATIENCE_MS));
    url = town.url(url);
    const sent = [sendChat(town, account, { ...what, patienceMs, url })];
    if (random.once(6)) sent.push(sendChat(town, account, { ...what, url: town.url(url) }));
    const replies = await Promise.all(sent);
    if (replies.some((reply) => reply?.status === 200)) return;
    await world().sleep(random.between(100, 3_000));
  }
}

async function sendChat(
  town: Town,
  { name: caller, kind, secret }: CallerAccount,
  how: Chat,
): Promise<Reply | undefined> {
  const { key } = how;
  const isTeam = kind === 'budgeted' && world().random.once(2);
  const tag = isTeam ? { [BUDGET.tag]: BUDGET.value } : undefined;
  const authorization = `Bearer ${secret}`;
  const paid =
    key === undefined
      ? { headers: { authorization }, metadata: tag }
      : { headers: { authorization, 'idempotency-key': key }, metadata: { key } };
  return await chat(town, { ...how, ...paid, caller });
}

export function chatKind(): ChatKind {
  const { random } = world();
  const isStream = random.once(2);
  return {
    isStream,
    isEmbedding: !isStream && random.once(3),
    maxTokens: random.between(1, random.pick(MAX_TOKENS)),
  };
}

/** Sends a chat or an embedding and records what its caller saw. */
export async function chat(town: Town, how: PaidChat): Promise<Reply | undefined> {
  const { caller, key, metadata, isEmbedding, url = town.url() } = how;
  town.happens(`request to ${url}`);
  if (key !== undefined) town.happens(`keyed request to ${url}`);
  const tags = isEmbedding && metadata && { 'x-svc-metadata': JSON.stringify(metadata) };
  const model = isEmbedding ? EMBEDDING_MODEL : MODEL;
  const sentMs = world().nowMs;
  const reply = await send(`${url}/${isEmbedding ? 'embeddings' : 'chat/completions'}`, {
    patienceMs: PATIENCE_MS,
    ...how,
    headers: { ...how.headers, ...tags },
    body: isEmbedding ? { model, input: ['Hi', 'there'] } : { ...chatBody(how), metadata },
  });
  const { status, requestId, requestsLeft, body = '' } = reply ?? {};
  const seen: ChatSeen = {
    caller,
    key,
    status,
    requestId,
    isInternal: status === 500 && !body.includes('INFERENCE_FAILED'),
    expectedNano: status === 200 ? priceOf(body) : undefined,
    isBroken: body.includes(ERROR_EVENT),
    sentMs,
    seenMs: world().nowMs,
    model,
    requestsLeft,
  };
  town.seen.push(seen);
  town.chats.push(seen);
  const { expectedNano = '' } = seen;
  world().note(`${caller} saw ${status ?? 'no response'} ${requestId ?? ''} ${expectedNano}`);
  return reply;
}

/** Returns a function that repeats a request until it has a response that is no failure of the server. */
export function untilDecided(
  town: Town,
  name: string,
  secret: string,
): (path: string, how?: object) => Promise<Reply> {
  const { random } = world();
  return async (path, how) => {
    for (;;) {
      const isHasty = random.once(4) && !town.isCalm;
      const patienceMs = isHasty ? random.between(1, 500) : DECISION_PATIENCE_MS;
      const reply = await send(`${town.url()}${path}`, { secret, patienceMs, ...how });
      world().note(`${name} saw ${reply?.status ?? 'no response'} for ${path}`);
      if (reply !== undefined && reply.status < 500 && reply.status !== 429) return reply;
      if (town.isCalm) throw new DefectFound(`${name} has no response for ${path}`);
      await world().sleep(random.between(500, 5_000));
    }
  };
}

export function chatBody({ isStream, maxTokens }: ChatKind): object {
  return {
    model: MODEL,
    max_completion_tokens: maxTokens,
    stream: isStream,
    ...(isStream ? { stream_options: { include_usage: true } } : {}),
    messages: [{ role: 'user', content: 'Hi' }],
  };
}

/** The price of the usage in a whole JSON response, or in the last event of a stream. Embeddings have no completion. */
export function priceOf(body: string): bigint | undefined {
  const usage = /"usage":\{[^}]*?"prompt_tokens":(\d+)[^}]*?(?:"completion_tokens":(\d+)|\})/.exec(
    body,
  );
  if (usage === null) return undefined;
  return BigInt(usage[1]!) * PRICE_NANO.input + BigInt(usage[2] ?? 0) * PRICE_NANO.output;
}
