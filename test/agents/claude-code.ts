/**
 * Claude Code, unmodified, against a real farebox with a scripted engine: a task of several turns
 * with tools, a search of the web with a tool that it looks for first, a picture, the money gone in
 * turn 2, the engine lost in mid-stream, a context that overflows.
 * Requests and postings are counted and the audit is exact.
 *
 * It is not part of the tests: it installs 0.4 GB. Run it by itself:
 *
 *   node test/agents/claude-code.ts [folder where @anthropic-ai/claude-code is installed already]
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import sharp from 'sharp';
import { claudeEnvironment } from '../../src/cli/agent-settings.ts';
import { startTestApp } from '../app/test-app.ts';
import { WebFace } from '../web/web-face.ts';
import { behave, type Behaviour, TestUpstream } from '../support/test-upstream.ts';

const PACKAGE = '@anthropic-ai/claude-code';
const VERSION = '2.1.330';
/** One run of the agent; a client that repeats a refusal for minutes is a failure. */
const RUN_LIMIT_MS = 120_000;

/** What the scripted model does with one request of the conversation. */
type Step = Behaviour | ((body: string) => Behaviour);

interface Ran {
  readonly result: Readonly<Record<string, unknown>>;
  /** Requests that were answered with 402. */
  readonly refused: number;
}

/** One run of the agent with an account of its own. */
interface Scenario {
  readonly name: string;
  readonly usd: string;
  readonly steps: Step[];
  /** Requests of the conversation that reached the engine, in order. */
  readonly bodies: string[];
}

/** USD for a million tokens of a prompt. */
const INPUT_PRICE = 5;

/** What the server answered, `POST /messages 200`, by number. */
const answers = new Map<string, number>();

const SQUARE = { width: 96, height: 96, channels: 3, background: 'red' } as const;

const folder = mkdtempSync(join(tmpdir(), 'farebox-claude-'));
const upstream = await TestUpstream.start();
const web = await WebFace.start();
web.results = [
  { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
];
const farebox = await startTestApp({
  yaml: `
engines: { rack: { url: "${upstream.url}" } }
models:
  - id: atlas
    type: text
    context: 200000
    maxCompletionTokens: 32000
    capabilities: [functionCalling, reasoning, responseSchema, vision, multipleImages]
    price: { input: ${INPUT_PRICE}, output: 5 }
    replicas: [{ engine: rack }]
search: { provider: searxng, url: "${web.url}" }
`,
});
farebox.app.server.server.prependListener('request', (request, response) => {
  response.on('close', () => {
    const path = request.url?.replace(/\?.*/, '').replace('/api/v1', '') ?? '';
    const what = `${request.method} ${path} ${response.statusCode}`;
    answers.set(what, (answers.get(what) ?? 0) + 1);
  });
});
const binary = await installed(process.argv[2]);

try {
  const promptBytes = await severalTurns();
  await webSearch();
  await picture();
  await moneyGone(promptBytes);
  await engineLost();
  await contextOverflow();
  console.log('The audit is exact after each.');
} finally {
  await farebox.stop();
  await upstream.kill();
  await web.stop();
  rmSync(folder, { recursive: true, force: true });
}

/** A file is written, read by a command, and talked about; gives the size of a first prompt. */
async function severalTurns(): Promise<number> {
  const work = workFolder('turns');
  const scenario = scenarioOf('a task of several turns', '50', [
    calls('Write', { file_path: join(work, 'hello.txt'), content: 'forty-two\n' }),
    calls('Bash', { command: 'cat hello.txt', description: 'Show the file' }),
    says('The file says forty-two.'),
  ]);
  const { result } = await run(scenario, work);
  assert.equal(result['result'], 'The file says forty-two.');
  assert.equal(result['is_error'], false);
  assert.equal(readFileSync(join(work, 'hello.txt'), 'utf8'), 'forty-two\n');
  assert.equal(scenario.bodies.length, 3);
  assert.match(
    scenario.bodies[2] ?? '',
    /"role":"tool","tool_call_id":"[^"]+","content":"forty-two/,
  );
  return Buffer.byteLength(scenario.bodies[0] ?? '');
}

/** The agent's search is a nested request, which this server answers with its own search. */
async function webSearch(): Promise<void> {
  const scenario = scenarioOf('a search with a tool that is looked for', '50', [
    calls('ToolSearch', { query: 'select:WebSearch', max_results: 1 }),
    (body) => {
      assert.match(body, /"name":"WebSearch"/, 'the tool is offered once it was found');
      return calls('WebSearch', { query: 'high tide' });
    },
    // The nested request: its model searches by the tool of this server.
    calls('web_search', { query: 'high tide' }),
    (body) => {
      assert.match(body, /The moon pulls the sea/);
      return says('High water is when the moon pulls.');
    },
    says('The moon makes the tide.'),
  ]);
  const { result } = await run(scenario, workFolder('search'));
  assert.equal(result['result'], 'The moon makes the tide.');
  assert.deepEqual(web.queries.length, 1);
  assert.match(scenario.bodies[4] ?? '', /example\.com\/tides/, 'the agent was given the sources');
}

/** What a tool gives back can be a picture. */
async function picture(): Promise<void> {
  const work = workFolder('picture');
  const file = join(work, 'dot.png');
  writeFileSync(file, await sharp({ create: SQUARE }).png().toBuffer());
  const scenario = scenarioOf('a picture is read', '50', [
    calls('Read', { file_path: file }),
    (body) => {
      assert.match(body, /"image_url":\{"url":"data:image\/(?:png|jpeg);base64,/);
      return says('A red square.');
    },
  ]);
  const { result } = await run(scenario, work);
  assert.equal(result['result'], 'A red square.');
}

/** The first turn takes nearly everything; the second is refused, and the agent says why at once. */
async function moneyGone(promptBytes: number): Promise<void> {
  const usd = ((promptBytes * 1.5 * INPUT_PRICE) / 1e6).toFixed(6);
  const scenario = scenarioOf('money gone in turn 2', usd, [
    (body) => {
      const promptTokens = Math.floor(Buffer.byteLength(body) * 0.9);
      return calls('Bash', { command: 'echo one', description: 'Say one' }, promptTokens);
    },
  ]);
  const { result, refused } = await run(scenario, workFolder('money'));
  assert.match(String(result['result']), /Credit balance is too low/);
  assert.equal(scenario.bodies.length, 1);
  assert.equal(refused, 1, 'one request met the empty balance');
}

/** The stream breaks in the middle of an answer; the agent asks again. */
async function engineLost(): Promise<void> {
  const scenario = scenarioOf('engine lost in mid-stream', '50', [
    calls('Bash', { command: 'echo one', description: 'Say one' }),
    { kind: 'stream', chunks: 40, cutAfter: 12 },
    says('Here I am again.'),
    says('Here I am again.'),
  ]);
  const { result } = await run(scenario, workFolder('engine'));
  assert.match(String(result['result']), /Here I am again/);
}

/** The engine finds the prompt too long; the agent compacts and goes on. */
async function contextOverflow(): Promise<void> {
  const scenario = scenarioOf('context overflow', '50', [
    calls('Bash', { command: 'echo one', description: 'Say one' }),
    {
      kind: 'status',
      status: 400,
      body: '{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}',
    },
    says('<summary>One was said.</summary>'),
    says('Done after compaction.'),
    says('Done after compaction.'),
  ]);
  const { result } = await run(scenario, workFolder('context'));
  assert.match(String(result['result']), /Done after compaction/);
}

function scenarioOf(name: string, usd: string, steps: Step[]): Scenario {
  return { name, usd, steps, bodies: [] };
}

function says(content: string): Behaviour {
  return { kind: 'answer', content, promptTokens: 20_000, completionTokens: 20 };
}

function calls(name: string, input: object, promptTokens = 20_000): Behaviour {
  const toolCalls = [{ name, arguments: JSON.stringify(input) }];
  return { kind: 'answer', toolCalls, promptTokens, completionTokens: 40 };
}

/** Runs the agent once, with nothing of this machine's settings, and says what it sent and paid. */
async function run(scenario: Scenario, work: string): Promise<Ran> {
  const { name, usd } = scenario;
  const { secret, accountId } = await farebox.account(usd);
  const before = await balance(accountId);
  answers.clear();
  upstream.otherwise = {
    kind: 'own',
    answer: (response, body) =>
      void behave(stepFor(scenario, body), response, { model: 'm', body }),
  };
  const startedMs = performance.now();
  const { code, out, err } = await agent(secret, work);
  const tookMs = Math.round(performance.now() - startedMs);
  let result: Ran['result'];
  try {
    result = JSON.parse(out) as Ran['result'];
  } catch (cause) {
    // What the agent printed instead says more than the parser does.
    throw new Error(`${name}: no JSON after ${tookMs} ms (exit ${code})\n${out}\n${err}`, {
      cause,
    });
  }
  const paid = before - (await balance(accountId));
  const { requests, cost } = await usage(secret);
  assert.equal(Math.round(cost.usd * 1e9), Number(paid), 'usage is what the balance lost');
  await farebox.audit();
  const sent = [...answers].map(([what, count]) => `${count} × ${what}`).join(', ');
  const words = JSON.stringify(String(result['result']).slice(0, 80));
  console.log(
    `${name}: exit ${code} after ${tookMs} ms, ${words}\n  ${sent}\n  ${requests} requests in usage, ${Number(paid) / 1e9} USD`,
  );
  return { result, refused: answers.get('POST /messages 402') ?? 0 };
}

async function balance(accountId: string): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
}

interface Totals {
  readonly requests: number;
  readonly cost: { readonly usd: number };
}

async function usage(secret: string): Promise<Totals> {
  const headers = { authorization: `Bearer ${secret}` };
  const answer = await fetch(`${farebox.url}/usage`, { headers });
  return ((await answer.json()) as { readonly totals: Totals }).totals;
}

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

async function agent(secret: string, work: string): Promise<Ended> {
  const settings = {
    origin: new URL(farebox.url).origin,
    secret,
    model: 'atlas',
    smallModel: 'atlas',
    contextTokens: 200_000,
    title: 'Farebox',
  };
  const env = {
    HOME: mkdtempSync(join(folder, 'home-')),
    PATH: process.env['PATH'],
    NO_PROXY: '127.0.0.1',
    DISABLE_AUTOUPDATER: '1',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    ...claudeEnvironment(settings),
  };
  const words = [
    '-p',
    'Do the task',
    '--output-format',
    'json',
    '--allowedTools',
    'Bash,Write,Read,WebSearch',
  ];
  const child = spawn(binary, words, { cwd: work, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const timer = setTimeout(() => child.kill('SIGKILL'), RUN_LIMIT_MS);
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => void (err += chunk.toString()));
  const code = await new Promise<number | null>((done) => void child.on('close', done));
  clearTimeout(timer);
  return { code, out, err };
}

/** The next step of the conversation; a word for what the agent asks beside it (titles, topics). */
function stepFor({ steps, bodies }: Scenario, body: string): Behaviour {
  const { tools, messages } = JSON.parse(body) as Record<string, unknown>;
  const said = JSON.stringify(messages);
  const isConversation = Array.isArray(tools) || /summar|The moon pulls/i.test(said);
  if (!isConversation) return says('A title');
  bodies.push(body);
  const step = steps.shift() ?? says('Nothing is left to do.');
  return typeof step === 'function' ? step(body) : step;
}

function workFolder(name: string): string {
  const path = join(folder, name);
  mkdirSync(path);
  return path;
}

/** The agent's binary: of a folder where it is, or installed into a temporary one. */
async function installed(given: string | undefined): Promise<string> {
  const at = given === undefined ? join(folder, 'install') : resolve(given);
  if (given === undefined) {
    mkdirSync(at);
    writeFileSync(join(at, 'package.json'), '{"private":true}');
    console.log(`Installing ${PACKAGE}@${VERSION} (0.4 GB) in ${at}`);
    const words = ['install', '--no-audit', '--no-fund', `${PACKAGE}@${VERSION}`];
    await promisify(execFile)('npm', words, { cwd: at });
  }
  const platform = `${process.platform}-${process.arch}`;
  return join(at, 'node_modules', `${PACKAGE}-${platform}`, 'claude');
}
