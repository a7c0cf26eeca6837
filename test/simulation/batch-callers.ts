/** Callers that upload requests in a file, start a batch, sometimes cancel it, and download its responses. */
import { chatBody, chatKind, priceOf, untilDecided } from './callers.ts';
import type { Reply } from './http.ts';
import type { CallerAccount, Town } from './town.ts';
import { DefectFound, world } from './world.ts';

const MAX_PAUSE_MS = 20_000;
const MAX_REQUESTS = 8;
/** The price of a batch is half of that of its requests. */
const PRICE_DIVISOR = 2n;
const BOUNDARY = 'lines';
const ENDED = /"status":"(?:completed|failed|cancelled|expired)"/;

/** A line of a result file. */
interface Line {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    body: unknown;
  } | null;
}

/** Runs one batch after the other until the run is over. */
export async function runBatches(town: Town): Promise<void> {
  const { random } = world();
  const accounts = town.accounts.filter(({ kind }) => kind !== 'keyed');
  for (let count = 1; accounts.length > 0; count += 1) {
    await world().sleep(random.between(1, MAX_PAUSE_MS));
    if (town.isOver) return;
    await runBatch(town, random.pick(accounts), `batch-${count}`);
  }
}

async function runBatch(town: Town, { secret }: CallerAccount, name: string): Promise<void> {
  const { random } = world();
  const ask = untilDecided(town, name, secret);
  const keys = Array.from({ length: random.between(1, MAX_REQUESTS) }, (_, at) => `${name}-${at}`);
  const file = idOf(await ask('/files', uploadOf(keys.map(lineOf))));
  const body = { input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const batch = idOf(await ask('/batches', { headers: { 'idempotency-key': name }, body }));
  if (random.once(4)) await ask(`/batches/${batch}/cancel`);
  let state = '';
  while (!ENDED.test(state)) {
    if (state !== '') await world().sleep(random.between(500, 5_000));
    state = (await ask(`/batches/${batch}`, { method: 'GET' })).body;
  }
  const results: Line[] = [];
  for (const [, id] of state.matchAll(/"(?:output|error)_file_id":"([^"]+)"/g)) {
    const { body: text } = await ask(`/files/${id}/content`, { method: 'GET' });
    const lines = text.trim().split('\n');
    results.push(...lines.map((line) => JSON.parse(line) as Line)); // the format of OpenAI
  }
  const ids = results.map((one) => one.custom_id);
  // A batch that is cancelled while its file is checked has none.
  if (ids.toSorted().join() !== keys.join() && !state.includes('"total":0,'))
    throw new DefectFound(`${name} has results for ${ids.join()}, not for ${keys.join()}`);
  for (const { custom_id: key, response } of results) {
    if (response === null) continue;
    const { status_code: status, request_id: requestId } = response;
    const price = priceOf(JSON.stringify(response.body));
    const expectedNano = price && price / PRICE_DIVISOR;
    town.seen.push({ caller: 'a batch', key, status, requestId, expectedNano });
  }
}

/** Each request has the key of its line in its receipt. */
function lineOf(key: string): string {
  const body = { ...chatBody({ ...chatKind(), isStream: false }), metadata: { key } };
  return JSON.stringify({ custom_id: key, method: 'POST', url: '/v1/chat/completions', body });
}

function uploadOf(lines: readonly string[]): object {
  const part = (name: string, content: string): string =>
    `--${BOUNDARY}\r\ncontent-disposition: form-data; name=${name}\r\n\r\n${content}\r\n`;
  return {
    headers: { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` },
    body: `${part('purpose', 'batch')}${part('file; filename=lines.jsonl', lines.join('\n'))}--${BOUNDARY}--\r\n`,
  };
}

function idOf({ status, body }: Reply): string {
  const id = /"id":"([^"]+)"/.exec(body)?.[1];
  if (status !== 200 || id === undefined) throw new DefectFound(`A batch was rejected: ${body}`);
  return id;
}
