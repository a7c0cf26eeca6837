/**
 * Unmodified Codex against a real server with a scripted engine: a task of several turns with
 * tools, a web search, an image, a sub-agent, an empty balance in turns 1 and 2, an interrupted
 * stream and an unreachable engine, a context overflow. Counts requests and postings, and audits
 * the ledger. It is not part of the tests, because it installs 0.4 GB.
 *
 * Run: node test/agents/codex.ts [folder with an installed @openai/codex]
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sharp } from '../support/sharp.ts';
import { isJsonObject } from '../../src/json/json-scan.ts';
import { withCodexSettings } from '../../src/cli/agent-settings.ts';
import {
  customCall,
  ENGINE_USAGE,
  functionCall,
  message,
  reasoning,
  responds,
} from '../support/responses-engine.ts';
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
} from './agent-fixture.ts';

const PACKAGE = '@openai/codex@0.169.0';

const SQUARE = { width: 96, height: 96, channels: 3, background: 'red' } as const;

/** An event of `codex exec --json`. */
type Event = Readonly<Record<string, unknown>>;

interface AgentModel {
  readonly model: string;
  /** Further lines of the agent's settings. */
  readonly settings: string;
}

interface CodexRan extends Ran {
  readonly events: readonly Event[];
  /** The last words of the agent. */
  readonly text: string;
}

const fixture = await AgentFixture.start();
const program = join(await installed(PACKAGE, process.argv[2], fixture.folder), '.bin', 'codex');

try {
  const promptBytes = await severalTurns();
  await catalogue();
  await responsesEngine('web_search = "disabled"\n', 'passed on');
  await responsesEngine('', 'translated, because a search is offered');
  await webSearch();
  await picture();
  await subAgent();
  await noMoney();
  await moneyGone(promptBytes);
  await engineLost();
  await engineGone();
  await contextOverflow();
  console.log('The audit is exact after each.');
} finally {
  await fixture.stop();
}

/** A file is written, read by a command, and talked about; gives the size of a first prompt. */
async function severalTurns(): Promise<number> {
  const work = fixture.newFolder('turns');
  const scenario = scenarioOf('a task of several turns', '50', [
    calls('exec_command', { cmd: 'printf "forty-two\\n" > hello.txt' }),
    calls('exec_command', { cmd: 'cat hello.txt' }),
    says('The file says forty-two.'),
  ]);
  const { text, answers } = await run(scenario, work);
  assert.equal(text, 'The file says forty-two.');
  assert.equal(readFileSync(join(work, 'hello.txt'), 'utf8'), 'forty-two\n');
  assert.equal(scenario.bodies.length, 3);
  assert.equal(answers.get('POST /responses 200'), 3);
  const [, , last = ''] = scenario.bodies;
  assert.match(last, /"role":"tool","tool_call_id":"[^"]+","content":"[^"]*forty-two/);
  // Earlier messages stay unchanged, so that engines can cache them.
  const turns = scenario.bodies.map((body) => JSON.parse(body).messages as unknown[]);
  for (const [at, messages] of turns.entries()) {
    const before = turns[at - 1] ?? [];
    assert.deepEqual(messages.slice(0, before.length), before);
  }
  return Buffer.byteLength(scenario.bodies[0] ?? '');
}

/** With the catalogue of this server the agent knows the model, and writes files by patches. */
async function catalogue(): Promise<void> {
  const work = fixture.newFolder('catalogue');
  const patch = '*** Begin Patch\n*** Add File: hello.txt\n+forty-two\n*** End Patch\n';
  const scenario = scenarioOf('a patch, with the catalogue', '50', [
    (body) => {
      assert.match(body, /You are a coding agent in a terminal/);
      return calls('apply_patch', { input: patch });
    },
    calls('exec_command', { cmd: 'cat hello.txt' }),
    says('The file says forty-two.'),
  ]);
  const catalogueUrl = `${fixture.farebox.url}/models/codex`;
  const { text, out } = await run(scenario, work, `model_catalog_url = "${catalogueUrl}"\n`);
  assert.equal(text, 'The file says forty-two.');
  assert.equal(readFileSync(join(work, 'hello.txt'), 'utf8'), 'forty-two\n');
  assert.match(scenario.bodies[2] ?? '', /"content":"[^"]*forty-two/);
  assert.doesNotMatch(out, /Model metadata for/);
}

/** An engine of the agent's own protocol: encrypted reasoning returns, and patches are custom calls. */
async function responsesEngine(settings: string, way: string): Promise<void> {
  const work = fixture.newFolder(way.replaceAll(/\W+/g, '-'));
  const isPassed = settings !== '';
  const patch = '*** Begin Patch\n*** Add File: hello.txt\n+forty-two\n*** End Patch\n';
  const call = isPassed
    ? customCall('1', 'apply_patch', patch)
    : functionCall('1', 'apply_patch', { input: patch });
  const scenario = scenarioOf(`an engine of the Responses API, ${way}`, '50', [
    (body) => {
      const { tools, store, include } = JSON.parse(body) as EngineBody;
      const made = tools.find(({ name }) => name === 'apply_patch');
      assert.equal(made?.type, isPassed ? 'custom' : 'function');
      assert.equal(store, false);
      assert.deepEqual(include, ['reasoning.encrypted_content']);
      return responds({ output: [reasoning('rs_1', ['I patch'], 'gAAA'), call] });
    },
    (body) => {
      const { input } = JSON.parse(body) as EngineBody;
      const thought = input.find(({ type }) => type === 'reasoning');
      assert.equal(thought?.['encrypted_content'], 'gAAA');
      const made = input.find(({ call_id }) => call_id === 'call_1');
      assert.equal(made?.['type'], isPassed ? 'custom_tool_call' : 'function_call');
      return responds({
        output: [
          reasoning('rs_2', [], 'gBBB'),
          functionCall('2', 'exec_command', { cmd: 'cat hello.txt' }),
        ],
      });
    },
    (body) => {
      assert.match(body, /gAAA.*gBBB/);
      return responds({ output: [message('msg_3', 'The file says forty-two.')] });
    },
  ]);
  const catalogueUrl = `${fixture.farebox.url}/models/codex`;
  const more = `model_catalog_url = "${catalogueUrl}"\n`;
  const { text, paidNano } = await run(scenario, work, more, { model: 'pro', settings });
  assert.equal(text, 'The file says forty-two.');
  assert.equal(readFileSync(join(work, 'hello.txt'), 'utf8'), 'forty-two\n');
  assert.equal(scenario.bodies.length, 3);
  const tokens = ENGINE_USAGE.input_tokens + ENGINE_USAGE.output_tokens;
  assert.equal(paidNano, BigInt(3 * tokens * PRICE * 1_000));
}

interface EngineBody {
  readonly tools: readonly { readonly type: string; readonly name?: string }[];
  readonly input: readonly Readonly<Record<string, unknown>>[];
  readonly store: boolean;
  readonly include: readonly string[];
}

/** The agent offers the search of the protocol in every request: it is ours. */
async function webSearch(): Promise<void> {
  fixture.web.results = [
    { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
  ];
  const scenario = scenarioOf('a search of the web', '50', [
    calls('web_search', { query: 'high tide' }),
    (body) => {
      assert.match(body, /The moon pulls the sea/);
      return says('The moon makes the tide[REF]0[/REF].');
    },
  ]);
  const { text, events, answers } = await run(scenario, fixture.newFolder('search'));
  assert.equal(text, 'The moon makes the tide[1].');
  assert.match(JSON.stringify(events), /"type":"web_search"/);
  assert.deepEqual(fixture.web.queries, ['high tide']);
  assert.equal(answers.get('POST /responses 200'), 1, 'both rounds are one request');
}

/** The result of a tool can be an image. */
async function picture(): Promise<void> {
  const work = fixture.newFolder('picture');
  const file = join(work, 'dot.png');
  writeFileSync(file, await sharp({ create: SQUARE }).png().toBuffer());
  const scenario = scenarioOf('a picture is looked at', '50', [
    calls('view_image', { path: file }),
    (body) => {
      assert.match(body, /"image_url":\{"url":"data:image\/png;base64,/);
      return says('A red square.');
    },
  ]);
  const { text } = await run(scenario, work);
  assert.equal(text, 'A red square.');
}

/** An agent of the agent: a tool in a namespace, whose calls must come back with it. */
async function subAgent(): Promise<void> {
  const scenario = scenarioOf('a sub-agent', '50', [
    calls('multi_agent_v1__spawn_agent', { message: 'Say hello' }),
    ...Array.from({ length: 4 }, () => (body: string) => {
      const spawned = /\\"agent_id\\":\\"([^"\\]+)/.exec(body)?.[1];
      if (spawned === undefined) return says('Hello from below.');
      return /Hello from below/.test(body)
        ? says('It said hello.')
        : calls('multi_agent_v1__wait_agent', { targets: [spawned] });
    }),
  ]);
  const { text } = await run(scenario, fixture.newFolder('sub-agent'));
  assert.equal(text, 'It said hello.');
  assert.doesNotMatch(scenario.bodies.join(), /unsupported call/);
}

/** One request is enough to know that there is no money. */
async function noMoney(): Promise<void> {
  const scenario = scenarioOf('no money in turn 1', '0.000001', []);
  const { events, answers } = await run(scenario, fixture.newFolder('no-money'));
  assert.match(JSON.stringify(events), /Quota exceeded/);
  assert.equal(answers.get('POST /responses 429'), 1);
  assert.equal(scenario.bodies.length, 0);
}

/** The first turn takes nearly everything; the second is refused. */
async function moneyGone(promptBytes: number): Promise<void> {
  const usd = ((promptBytes * 1.5 * PRICE) / 1e6).toFixed(6);
  const scenario = scenarioOf('money gone in turn 2', usd, [
    (body) => {
      const promptTokens = Math.floor(Buffer.byteLength(body) * 0.9);
      return calls('exec_command', { cmd: 'echo one' }, promptTokens);
    },
  ]);
  const { events, answers, charged } = await run(scenario, fixture.newFolder('money'));
  assert.match(JSON.stringify(events), /Quota exceeded/);
  assert.equal(scenario.bodies.length, 1);
  assert.equal(answers.get('POST /responses 429'), 1, 'one request met the empty balance');
  assert.equal(charged, 1);
}

/** The stream breaks in the middle of a message; the agent retries and continues. */
async function engineLost(): Promise<void> {
  const scenario = scenarioOf('engine lost in mid-stream', '50', [
    calls('exec_command', { cmd: 'echo one' }),
    { kind: 'stream', chunks: 40, cutAfter: 12 },
    says('Here I am again.'),
  ]);
  const { text, answers } = await run(scenario, fixture.newFolder('engine'));
  assert.equal(text, 'Here I am again.');
  assert.equal(answers.get('POST /responses 200'), 3);
}

/** No engine responds: the agent retries for some seconds and reports it; nothing is charged. */
async function engineGone(): Promise<void> {
  const gone = { kind: 'status', status: 500 } as const;
  const scenario = scenarioOf(
    'no engine',
    '50',
    Array.from({ length: 100 }, () => gone),
  );
  const { code, answers, paidNano } = await run(scenario, fixture.newFolder('gone'));
  assert.notEqual(code, 0);
  assert.ok((answers.get('POST /responses 503') ?? 0) <= 6);
  assert.equal(paidNano, 0n);
}

/** The engine finds the prompt too long: one request, and the agent says why. */
async function contextOverflow(): Promise<void> {
  const scenario = scenarioOf('context overflow', '50', [
    calls('exec_command', { cmd: 'echo one' }),
    {
      kind: 'status',
      status: 400,
      body: '{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}',
    },
  ]);
  const { code, events, answers } = await run(scenario, fixture.newFolder('context'));
  assert.notEqual(code, 0);
  assert.match(JSON.stringify(events), /context/i);
  assert.equal(answers.get('POST /responses 400'), 1);
}

async function run(
  scenario: Scenario,
  work: string,
  more = '',
  { model, settings: given }: AgentModel = { model: 'atlas', settings: '' },
): Promise<CodexRan> {
  const ran = await fixture.run(scenario, async (secret) => {
    const home = mkdtempSync(join(fixture.folder, 'home-'));
    const settings = {
      origin: new URL(fixture.farebox.url).origin,
      secret,
      model,
      smallModel: model,
      contextTokens: 200_000,
      title: 'Farebox',
    };
    // The table of the provider is the last of the file.
    writeFileSync(join(home, 'config.toml'), withCodexSettings(given, settings) + more);
    const env = {
      HOME: home,
      CODEX_HOME: home,
      PATH: process.env['PATH'],
      NO_PROXY: '127.0.0.1',
    };
    const words = [
      'exec',
      '--json',
      '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox',
      'Do the task',
    ];
    return execute(program, words, { cwd: work, env });
  });
  const events = ran.out
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Event);
  const items = events.flatMap(({ type, item }) =>
    type === 'item.completed' && isJsonObject(item) ? [item] : [],
  );
  const said = items.findLast(({ type }) => type === 'agent_message')?.['text'];
  return { ...ran, events, text: typeof said === 'string' ? said : '' };
}
