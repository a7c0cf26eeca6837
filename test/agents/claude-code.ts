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
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import sharp from 'sharp';
import { claudeEnvironment } from '../../src/cli/agent-settings.ts';
import {
  AgentRig,
  calls,
  execute,
  installed,
  PRICE,
  type Scenario,
  says,
  scenarioOf,
} from './agent-rig.ts';

const PACKAGE = '@anthropic-ai/claude-code';
const VERSION = '2.1.330';

interface ClaudeRan {
  readonly result: Readonly<Record<string, unknown>>;
  /** Requests that were answered with 402. */
  readonly refused: number;
}

const SQUARE = { width: 96, height: 96, channels: 3, background: 'red' } as const;

const rig = await AgentRig.start();
rig.web.results = [
  { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
];
const modules = await installed(`${PACKAGE}@${VERSION}`, process.argv[2], rig.folder);
const binary = join(modules, `${PACKAGE}-${process.platform}-${process.arch}`, 'claude');

try {
  const promptBytes = await severalTurns();
  await webSearch();
  await picture();
  await moneyGone(promptBytes);
  await engineLost();
  await contextOverflow();
  console.log('The audit is exact after each.');
} finally {
  await rig.stop();
}

/** A file is written, read by a command, and talked about; gives the size of a first prompt. */
async function severalTurns(): Promise<number> {
  const work = rig.newFolder('turns');
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
  const { result } = await run(scenario, rig.newFolder('search'));
  assert.equal(result['result'], 'The moon makes the tide.');
  assert.deepEqual(rig.web.queries.length, 1);
  assert.match(scenario.bodies[4] ?? '', /example\.com\/tides/, 'the agent was given the sources');
}

/** What a tool gives back can be a picture. */
async function picture(): Promise<void> {
  const work = rig.newFolder('picture');
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
  const usd = ((promptBytes * 1.5 * PRICE) / 1e6).toFixed(6);
  const scenario = scenarioOf('money gone in turn 2', usd, [
    (body) => {
      const promptTokens = Math.floor(Buffer.byteLength(body) * 0.9);
      return calls('Bash', { command: 'echo one', description: 'Say one' }, promptTokens);
    },
  ]);
  const { result, refused } = await run(scenario, rig.newFolder('money'));
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
  const { result } = await run(scenario, rig.newFolder('engine'));
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
  const { result } = await run(scenario, rig.newFolder('context'));
  assert.match(String(result['result']), /Done after compaction/);
}

/** Runs the agent once, with nothing of this machine's settings. */
async function run(scenario: Scenario, work: string): Promise<ClaudeRan> {
  const { name } = scenario;
  const { out, err, code, answers } = await rig.run(
    scenario,
    (secret) => agent(secret, work),
    isBeside,
  );
  let result: ClaudeRan['result'];
  try {
    result = JSON.parse(out) as ClaudeRan['result'];
  } catch (cause) {
    // What the agent printed instead says more than the parser does.
    throw new Error(`${name}: no JSON (exit ${code})\n${out}\n${err}`, { cause });
  }
  console.log(`  ${JSON.stringify(String(result['result']).slice(0, 80))}`);
  return { result, refused: answers.get('POST /messages 402') ?? 0 };
}

async function agent(secret: string, work: string): ReturnType<typeof execute> {
  const settings = {
    origin: new URL(rig.farebox.url).origin,
    secret,
    model: 'atlas',
    smallModel: 'atlas',
    contextTokens: 200_000,
    title: 'Farebox',
  };
  const env = {
    HOME: mkdtempSync(join(rig.folder, 'home-')),
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
  return execute(binary, words, { cwd: work, env });
}

/** Titles and topics, which the agent asks for beside its conversation. */
function isBeside(body: string): boolean {
  const { tools, messages } = JSON.parse(body) as Record<string, unknown>;
  const said = JSON.stringify(messages);
  return !Array.isArray(tools) && !/summar|The moon pulls/i.test(said);
}
