/**
 * Unmodified Claude Code against a real server with a scripted engine: a task of several turns with
 * tools, parallel calls, a sub-agent, a web search, an image, a PDF, an empty balance in turn 2, an
 * interrupted stream, a context overflow, and its reaction to each error. Counts requests and
 * postings, and audits the ledger. It is not part of the tests, because it installs 0.4 GB.
 *
 * Run: node test/agents/claude-code.ts [folder with an installed @anthropic-ai/claude-code]
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sharp } from '../support/sharp.ts';
import { claudeEnvironment } from '../../src/cli/agent-settings.ts';
import { pdfFile, pdfText } from '../support/test-files.ts';
import {
  AgentFixture,
  calls,
  execute,
  installed,
  PRICE,
  type Ran,
  type Scenario,
  says,
  scenarioOf,
  type Step,
} from './agent-fixture.ts';

const NAME = '@anthropic-ai/claude-code';
const VERSION = '2.1.330';

const SQUARE = { width: 96, height: 96, channels: 3, background: 'red' } as const;

interface ClaudeRan extends Ran {
  /** Final output of `--output-format json`. */
  readonly result: Readonly<Record<string, unknown>>;
  /** Requests for messages. */
  readonly requests: number;
}

const fixture = await AgentFixture.start();
fixture.web.results = [
  { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
];
const packages = await installed(`${NAME}@${VERSION}`, process.argv[2], fixture.folder);
const program = join(packages, `${NAME}-${process.platform}-${process.arch}`, 'claude');

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
  await fixture.stop();
}

/** A file is written, read by a command, and talked about; gives the size of a first prompt. */
async function severalTurns(): Promise<number> {
  const work = fixture.newFolder('turns');
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

/** Calls of one message run in parallel, and their results come back in its order. */
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
  const { result } = await run(scenario, fixture.newFolder('side-by-side'));
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
  const { result } = await run(scenario, fixture.newFolder('sub-agent'));
  assert.equal(result['result'], 'It said a word.');
  const sessions = scenario.bodies.map((body) => /"prompt_cache_key":"([^"]+)"/.exec(body)?.[1]);
  assert.equal(new Set(sessions).size, 1, 'one session, one sum');
}

/** The search of the agent is a nested request, for which the server runs its own search. */
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
  const { result } = await run(scenario, fixture.newFolder('search'));
  assert.equal(result['result'], 'The moon makes the tide.');
  assert.deepEqual(fixture.web.queries.length, 1);
  assert.match(scenario.bodies[4] ?? '', /example\.com\/tides/, 'the agent was given the sources');
}

/** The result of a tool can be an image. */
async function picture(): Promise<void> {
  const work = fixture.newFolder('picture');
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
  const work = fixture.newFolder('pdf');
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

/** Counts the retries of the agent for each error. */
async function refusals(): Promise<void> {
  const failing: Step = { kind: 'status', status: 500 };
  const wrong = await run(scenarioOf('a wrong key', '50', []), fixture.newFolder('key'), {
    ANTHROPIC_AUTH_TOKEN: 'SVC_INFERENCE_KEY_none',
  });
  assert.equal(wrong.requests, 1);
  const model = await run(scenarioOf('an unknown model', '50', []), fixture.newFolder('model'), {
    ANTHROPIC_MODEL: 'atlsa',
  });
  assert.ok(model.requests <= 2);
  const steps = Array.from({ length: 40 }, () => failing);
  const engine = await run(
    scenarioOf('an engine that fails', '50', steps),
    fixture.newFolder('down'),
  );
  assert.equal(engine.requests, 1);
  const limited = await run(
    scenarioOf('next to no credit', '0.000001', []),
    fixture.newFolder('broke'),
  );
  assert.match(String(limited.result['result']), /Credit balance is too low/);
  assert.equal(limited.requests, 1);
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
  const { result, answers } = await run(scenario, fixture.newFolder('money'));
  assert.match(String(result['result']), /Credit balance is too low/);
  assert.equal(scenario.bodies.length, 1);
  assert.equal(answers.get('POST /messages 402'), 1, 'one request met the empty balance');
}

/** The stream breaks in the middle of a message; the agent retries. */
async function engineLost(): Promise<void> {
  const scenario = scenarioOf('engine lost in mid-stream', '50', [
    calls('Bash', { command: 'echo one', description: 'Say one' }),
    { kind: 'stream', chunks: 40, cutAfter: 12 },
    says('Here I am again.'),
    says('Here I am again.'),
  ]);
  const { result } = await run(scenario, fixture.newFolder('engine'));
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
  const { result } = await run(scenario, fixture.newFolder('context'));
  assert.match(String(result['result']), /Done after compaction/);
}

/** Runs the agent once, with nothing of this machine's settings. */
async function run(
  scenario: Scenario,
  work: string,
  own: Readonly<Record<string, string>> = {},
): Promise<ClaudeRan> {
  const ran = await fixture.run(
    scenario,
    (secret) => {
      const settings = {
        origin: new URL(fixture.farebox.url).origin,
        secret,
        model: 'atlas',
        smallModel: 'atlas',
        contextTokens: 200_000,
        title: 'Farebox',
      };
      const env = {
        HOME: mkdtempSync(join(fixture.folder, 'home-')),
        PATH: process.env['PATH'],
        NO_PROXY: '127.0.0.1',
        DISABLE_AUTOUPDATER: '1',
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        ...claudeEnvironment(settings),
        ...own,
      };
      const tools = 'Bash,Write,Read,WebSearch,Agent';
      const words = ['-p', 'Do the task', '--output-format', 'json', '--allowedTools', tools];
      return execute(program, words, { cwd: work, env });
    },
    isBeside,
  );
  const { name } = scenario;
  const asked = [...ran.answers].filter(([what]) => what.startsWith('POST /messages '));
  const requests = asked.reduce((sum, [, count]) => sum + count, 0);
  try {
    const result = JSON.parse(ran.out) as ClaudeRan['result'];
    console.log(`  ${JSON.stringify(String(result['result']).slice(0, 80))}`);
    return { ...ran, result, requests };
  } catch (cause) {
    // The output of the agent is more useful than the parser error.
    throw new Error(`${name}: no JSON (exit ${ran.code})\n${ran.out}\n${ran.err}`, { cause });
  }
}

/** Small requests beside the conversation (titles, topics) have no tools and no summary to make. */
function isBeside(body: string): boolean {
  const { tools, messages } = JSON.parse(body) as Record<string, unknown>;
  return !Array.isArray(tools) && !/summar|The moon pulls/i.test(JSON.stringify(messages));
}
