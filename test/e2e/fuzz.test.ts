/**
 * Sends valid, almost valid and invalid requests to every operation of the server's own OpenAPI
 * document. No response may be an unexpected 5xx, reveal internals, differ from the document or be
 * late, and the audit must succeed afterwards. Runs are reproducible. `FAREBOX_FUZZ_RUNS=50` makes
 * a longer, random run; a failure prints how to repeat it (see CONTRIBUTING.md).
 */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { crc32 } from 'node:zlib';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { wholeOperation } from '../app/whole-operation.ts';
import { BASE_PATH } from '../../src/server/server.ts';
import { chatBody } from '../app/call.ts';
import { heads } from '../fuzz/heads.ts';
import { type FuzzRequest, type FuzzTarget, requestsOf } from '../fuzz/requests.ts';
import { type Answer, send, sendBytes } from '../fuzz/send.ts';
import { type Fixture, startFixture } from '../fuzz/fixture.ts';
import { type ExpectedFailure, Verdict, codeOf } from '../fuzz/verdict.ts';

/** Requests to each operation. */
const RUNS = 80;
/** The same without a body: there is less to get wrong in an address and its parameters. */
const READ_RUNS = 30;
/** The same for those that take long each: sound to decode, documents of megabytes, every row. */
const FEW_RUNS = 10;
/** Messages that are hardly HTTP. */
const HEAD_RUNS = 250;
const SLOW = /transcriptions|translations|openapi\.json|docs|admin\/(?:audit|check|config)/;
/** The seed of the run that is the same each time. */
const USUAL_SEED = 20_261_121;
/** No engine of the test thinks for longer than this, on the slowest of machines. */
const MAX_ANSWER_MS = 60_000;
/** The server polls a job every few seconds. */
const MAX_FILM_MS = 120_000;
/** Minimum share of successful responses; below it the fuzzer does not reach the work. */
const MIN_SERVED_SHARE = 0.1;

const scale = Number(process.env['FAREBOX_FUZZ_RUNS'] ?? '1');
const seed = Number(
  process.env['FAREBOX_FUZZ_SEED'] ?? (scale === 1 ? USUAL_SEED : Date.now() % 2 ** 31),
);
/** Tests only operations whose name contains this text. */
const only = process.env['FAREBOX_FUZZ_ONLY'] ?? '';

/** Nothing is broken in the test, so hardly any failure can be right. */
const EXPECTED_FAILURES: readonly ExpectedFailure[] = [
  {
    path: /\/crypto\/rpc\//,
    code: 'RPC_NETWORK_UNAVAILABLE',
    why: 'one network has a node; the others are known and have none',
  },
];

describe('the API under fuzzing', () => {
  let fixture: Fixture;
  let verdict: Verdict;
  /** Uncaught errors, which would end a server in its own process. */
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);

  before(async () => {
    process.on('uncaughtExceptionMonitor', note).on('unhandledRejection', note);
    fixture = await startFixture();
    verdict = new Verdict({
      document: fixture.source.document,
      basePath: BASE_PATH,
      expected: EXPECTED_FAILURES,
      secrets: fixture.secrets,
      addresses: fixture.addresses,
    });
  });
  after(async () => {
    process.off('uncaughtExceptionMonitor', note).off('unhandledRejection', note);
    await fixture.stop();
  });

  async function judge(request: FuzzRequest, kinds: Map<string, number>): Promise<void> {
    fixture.forget();
    const answer = await send(fixture.origin, request, MAX_ANSWER_MS);
    const code = answer.status < 400 ? '' : (codeOf(answer.body.toString()) ?? '');
    const kind = `${answer.status} ${code}`.trim();
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const problems = verdict.problems(request, answer);
    assert.equal(problems.length, 0, [...problems, shown(answer), logged(fixture)].join('\n'));
  }

  test('every operation responds as its document describes', async (t) => {
    const targets = targetsOf(fixture).filter(({ name }) => name.includes(only));
    assert.ok(targets.length > 0, `No operation is called ${only}`);
    t.diagnostic(`seed ${seed}`);
    let served = 0;
    for (const target of targets) {
      await t.test(target.name, async (operation) => {
        const kinds = new Map<string, number>();
        const property = fc.asyncProperty(requestsOf(target, fixture.source), (request) =>
          judge(request, kinds),
        );
        await holds(target.name, property, runsOf(target));
        served += kinds.get('200') ?? 0;
        // Shows the coverage of long runs.
        if (scale !== 1) operation.diagnostic(JSON.stringify(Object.fromEntries(kinds)));
      });
    }
    const all = targets.reduce((sum, target) => sum + runsOf(target), 0);
    const isEnough = only !== '' || served > all * MIN_SERVED_SHARE;
    assert.ok(isEnough, `Only ${served} requests of ${all} were served`);
    assert.deepEqual(uncaught, []);
  });

  test('malformed HTTP gets a response, or the connection is closed', async () => {
    const right = {
      host: new URL(fixture.origin).host,
      authorization: `Bearer ${fixture.farebox.owner.secret}`,
      path: `${BASE_PATH}/chat/completions`,
      body: JSON.stringify(chatBody()),
    };
    let answered = 0;
    const property = fc.asyncProperty(heads(right), async (bytes) => {
      const answer = await sendBytes(fixture.origin, bytes, MAX_ANSWER_MS);
      answered += answer.length === 0 ? 0 : 1;
      const problems = verdict.problemsOfBytes(bytes, answer);
      assert.equal(problems.length, 0, [...problems, answer.toString('latin1')].join('\n'));
    });
    await holds('', property, Math.ceil(HEAD_RUNS * scale));
    assert.ok(answered > (HEAD_RUNS * scale) / 2, `Only ${answered} were answered`);
    assert.deepEqual(uncaught, []);
  });

  test('after fuzzing the audit succeeds, no hold is open, and requests are served', async () => {
    const { farebox } = fixture;
    // The balance of the account can be used up, or limited by a budget.
    const { secret } = await farebox.account('1');
    const answer = await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(chatBody()),
    });
    assert.equal(answer.status, 200, await answer.text());
    await farebox.audit();
    // Waits for the videos, whose jobs are the only running work.
    const until = performance.now() + MAX_FILM_MS;
    const left = { holds: 0, requests: 1 };
    let found = await leftOver(fixture);
    while (!isDeepStrictEqual(found, left) && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      found = await leftOver(fixture);
    }
    assert.deepEqual(found, left);
  });
});

/** Requests without a response so far. */
async function leftOver({ farebox, origin }: Fixture) {
  const metrics = await (await fetch(`${origin}/metrics`)).text();
  const { openHolds } = await farebox.app.stores.ledger.audit();
  return {
    holds: openHolds,
    requests: Number(/^farebox_requests_open (\d+)$/m.exec(metrics)?.[1]),
  };
}

/** Fails with the smallest failing request, and with the command to repeat it. */
async function holds<T>(name: string, property: fc.IAsyncProperty<[T]>, runs: number) {
  try {
    // Each operation has its own seed, which is the same if it runs alone.
    await fc.assert(property, { seed: seed ^ crc32(name), numRuns: runs });
  } catch (error) {
    const which = name === '' ? '' : `FAREBOX_FUZZ_ONLY='${name}' `;
    const again = `Repeat with ${which}FAREBOX_FUZZ_SEED=${seed} FAREBOX_FUZZ_RUNS=${scale}`;
    throw new Error(again, { cause: error });
  }
}

function runsOf({ name, operation }: NamedTarget): number {
  const usual = operation.requestBody === undefined ? READ_RUNS : RUNS;
  return Math.ceil((SLOW.test(name) ? FEW_RUNS : usual) * scale);
}

type NamedTarget = FuzzTarget & { readonly name: string };

const METHODS: readonly string[] = ['get', 'post', 'put', 'patch', 'delete'];

/** Every operation of the document. */
function targetsOf({ source }: Fixture): NamedTarget[] {
  return Object.entries(source.document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([method]) => METHODS.includes(method))
      .map(([method, operation]) => ({
        name: `${method.toUpperCase()} ${path}`,
        path,
        method,
        operation: wholeOperation(operation, source.document),
        base: 'servers' in item ? '' : BASE_PATH,
      })),
  );
}

const MAX_SHOWN_CHARS = 3_000;

function shown({ status, headers, body }: Answer): string {
  const head = headers.map((pair) => pair.join(': ')).join('\n');
  return `${status}\n${head}\n\n${body.toString('utf8').slice(0, MAX_SHOWN_CHARS)}`;
}

/** Log lines about a failure. */
function logged({ log }: Fixture): string {
  return log
    .filter(({ level }) => level === 'error')
    .map(({ message, fields }) => `${message}: ${JSON.stringify(fields)}`)
    .join('\n');
}
