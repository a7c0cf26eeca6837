/**
 * Claude Code, unmodified, against a real farebox with a scripted engine: a task of several turns
 * with tools, calls side by side, a sub-agent, a search of the web with a tool that it looks for first,
 * a picture, a PDF, the money gone in turn 2, the engine lost in mid-stream, a context that overflows,
 * and what it does on each refusal.
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
import { pdfFile, pdfText } from '../support/test-files.ts';
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
  /** Requests for messages. */
  readonly requests: number;
  /** Those that were answered with 402. */
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
  await sideBySide();
  await subAgent();
  await webSearch();
  await picture();
  await pdf();
  await moneyGone(promptBytes);
  await engineLost();
  await contextOverflow();
  await refusals();
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

/** Calls of one answer run together, and their results come back in its order. */
async function sideBySide(): Promise<void> {
  const scenario = scenarioOf('calls side by side', '50', [
    {
      kind: 'answer',
      reasoning: 'Both at once',
      toolCalls: ['one', 'two'].map((word) => ({
        name: 'Bash',
        arguments: JSON.stringify({ command: `echo ${word}`, description: word }),
      })),
      promptTokens: 20_000,
      completionTokens: 80,
    },
    (body) => {
      const { messages } = JSON.parse(body) as { messages: Record<string, unknown>[] };
      const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
      assert.deepEqual(results, ['one', 'two']);
      assert.match(body, /"reasoning_content":"Both at once"/, 'sealed, and opened again');
      return says('Both ran.');
    },
  ]);
  const { result } = await run(scenario, workFolder('side-by-side'));
  assert.equal(result['result'], 'Both ran.');
}

/** An agent of the agent is a conversation of its own in the same session. */
async function subAgent(): Promise<void> {
  const task = {
    description: 'Say a word',
    prompt: 'Say a word',
    subagent_type: 'general-purpose',
  };
  const scenario = scenarioOf('a sub-agent', '50', [
    calls('Agent', { ...task, run_in_background: false }),
    says('The word of the sub-agent'),
    (body) => {
      assert.match(body, /The word of the sub-agent/);
      return says('It said a word.');
    },
  ]);
  const { result } = await run(scenario, workFolder('sub-agent'));
  assert.equal(result['result'], 'It said a word.');
  const sessions = scenario.bodies.map((body) => /"prompt_cache_key":"([^"]+)"/.exec(body)?.[1]);
  assert.equal(new Set(sessions).size, 1, 'one session, one sum');
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

/** A document is read for the model, as text. */
async function pdf(): Promise<void> {
  const work = workFolder('pdf');
  const file = join(work, 'note.pdf');
  writeFileSync(file, pdfFile([pdfText('The code word is heron')]));
  const scenario = scenarioOf('a PDF is read', '50', [
    calls('Read', { file_path: file }),
    (body) => {
      assert.match(body, /The code word is heron/);
      return says('Heron.');
    },
  ]);
  const { result } = await run(scenario, work);
  assert.equal(result['result'], 'Heron.');
}

/** How often the agent asks again, by what it was told: the table of the refusals, by counting. */
async function refusals(): Promise<void> {
  const failing: Step = { kind: 'status', status: 500 };
  const wrong = await run(scenarioOf('a wrong key', '50', []), workFolder('key'), {
    ANTHROPIC_AUTH_TOKEN: 'SVC_INFERENCE_KEY_none',
  });
  assert.equal(wrong.requests, 1);
  const model = await run(scenarioOf('an unknown model', '50', []), workFolder('model'), {
    ANTHROPIC_MODEL: 'atlsa',
  });
  assert.ok(model.requests <= 2);
  const steps = Array.from({ length: 40 }, () => failing);
  const engine = await run(scenarioOf('an engine that fails', '50', steps), workFolder('down'));
  assert.equal(engine.requests, 1);
  const limited = await run(scenarioOf('next to no credit', '0.000001', []), workFolder('broke'));
  assert.match(String(limited.result['result']), /Credit balance is too low/);
  assert.equal(limited.requests, 1);
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
async function run(
  scenario: Scenario,
  work: string,
  own: Readonly<Record<string, string>> = {},
): Promise<Ran> {
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
  const { code, out, err } = await agent(secret, work, own);
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
  const asked = [...answers].filter(([what]) => what.startsWith('POST /messages '));
  return {
    result,
    requests: asked.reduce((sum, [, count]) => sum + count, 0),
    refused: answers.get('POST /messages 402') ?? 0,
  };
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

async function agent(
  secret: string,
  work: string,
  own: Readonly<Record<string, string>>,
): Promise<Ended> {
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
    ...own,
  };
  const words = [
    '-p',
    'Do the task',
    '--output-format',
    'json',
    '--allowedTools',
    'Bash,Write,Read,WebSearch,Agent',
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
