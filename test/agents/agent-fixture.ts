/**
 * Shared parts of runs of coding agents: a real server with a scripted engine, an account per run,
 * and the count of requests and charges. The agents are not test packages, because they take 0.4 GB
 * each.
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { behave, type Behaviour, TestUpstream } from '../support/test-upstream.ts';
import { TestWeb } from '../web/test-web.ts';

/** Timeout of one run of an agent; a client that retries an error for minutes is a failure. */
const RUN_LIMIT_MS = 120_000;
/** USD for a million tokens, in and out. */
export const PRICE = 5;

/** Step of the scripted model for one request of the conversation. */
export type Step = Behaviour | ((body: string) => Behaviour);

/** One run of the agent with an account of its own. */
export interface Scenario {
  readonly name: string;
  readonly usd: string;
  readonly steps: Step[];
  /** Requests of the conversation that reached the engine, in order. */
  readonly bodies: string[];
}

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface Ran extends Ended {
  /** Number of responses, by `POST /responses 200`. */
  readonly answers: ReadonlyMap<string, number>;
  readonly paidNano: bigint;
  /** Requests that usage knows. */
  readonly charged: number;
}

export class AgentFixture {
  readonly farebox: TestApp;
  readonly web: TestWeb;
  readonly folder: string;
  readonly #upstream: TestUpstream;
  #answers = new Map<string, number>();

  private constructor(farebox: TestApp, upstream: TestUpstream, web: TestWeb) {
    this.farebox = farebox;
    this.web = web;
    this.folder = mkdtempSync(join(tmpdir(), 'farebox-agent-'));
    this.#upstream = upstream;
    farebox.app.server.server.prependListener('request', (request, response) => {
      response.on('close', () => {
        const path = request.url?.replace(/\?.*/, '').replace('/api/v1', '') ?? '';
        const what = `${request.method} ${path} ${response.statusCode}`;
        this.#answers.set(what, (this.#answers.get(what) ?? 0) + 1);
      });
    });
  }

  static async start(): Promise<AgentFixture> {
    const upstream = await TestUpstream.start();
    const web = await TestWeb.start();
    const farebox = await startTestApp({
      yaml: `
engines:
  rack: { url: "${upstream.url}" }
  hosted: { url: "${upstream.url}", protocol: responses }
models:
  - id: atlas
    type: text
    context: 200000
    maxCompletionTokens: 32000
    capabilities: [functionCalling, reasoning, responseSchema, vision, multipleImages]
    price: { input: ${PRICE}, output: ${PRICE} }
    replicas: [{ engine: rack }]
  - id: pro
    type: text
    context: 200000
    maxCompletionTokens: 32000
    capabilities: [functionCalling, reasoning, responseSchema, vision, multipleImages]
    price: { input: ${PRICE}, output: ${PRICE} }
    replicas: [{ engine: hosted }]
search: { provider: searxng, url: "${web.url}" }
`,
    });
    return new AgentFixture(farebox, upstream, web);
  }

  async stop(): Promise<void> {
    await this.farebox.stop();
    await this.#upstream.kill();
    await this.web.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A new folder below that of the run. */
  newFolder(name: string): string {
    const path = join(this.folder, name);
    mkdirSync(path);
    return path;
  }

  /**
   * Runs an agent once; returns its requests and charges. `start` starts it with the key of the
   * account. `isBeside` identifies requests outside the conversation (titles), which get a short
   * text. Fails unless the usage equals the change of the balance and the audit succeeds.
   */
  async run(
    scenario: Scenario,
    start: (secret: string) => Promise<Ended>,
    isBeside: (body: string) => boolean = () => false,
  ): Promise<Ran> {
    const { secret, accountId } = await this.farebox.account(scenario.usd);
    const before = await this.#balance(accountId);
    this.#answers = new Map();
    this.#upstream.otherwise = {
      kind: 'own',
      answer: (response, body) => {
        const step = isBeside(body) ? says('A title') : nextStep(scenario, body);
        void behave(step, response, { model: 'm', body });
      },
    };
    const startedMs = performance.now();
    const ended = await start(secret);
    const tookMs = Math.round(performance.now() - startedMs);
    const paidNano = before - (await this.#balance(accountId));
    const { requests, cost } = await this.#usage(secret);
    assert.equal(Math.round(cost.usd * 1e9), Number(paidNano), 'usage is what the balance lost');
    await this.farebox.audit();
    const answers = this.#answers;
    const sent = [...answers].map(([what, count]) => `${count} × ${what}`).join(', ');
    console.log(
      `${scenario.name}: exit ${ended.code} after ${tookMs} ms\n  ${sent}\n  ${scenario.bodies.length} reached the engine, ${requests} in usage, ${Number(paidNano) / 1e9} USD`,
    );
    return { ...ended, answers, paidNano, charged: requests };
  }

  async #balance(accountId: string): Promise<bigint> {
    return (await this.farebox.app.stores.ledger.balances(accountId)).usdNano;
  }

  async #usage(secret: string): Promise<Totals> {
    const headers = { authorization: `Bearer ${secret}` };
    const answer = await fetch(`${this.farebox.url}/usage`, { headers });
    const { totals } = (await answer.json()) as { readonly totals: Totals }; // as documented
    return totals;
  }
}

interface Totals {
  readonly requests: number;
  readonly cost: { readonly usd: number };
}

export function scenarioOf(name: string, usd: string, steps: Step[]): Scenario {
  return { name, usd, steps, bodies: [] };
}

export function says(content: string): Behaviour {
  return { kind: 'answer', content, promptTokens: 20_000, completionTokens: 20 };
}

export function calls(name: string, input: unknown, promptTokens = 20_000): Behaviour {
  const toolCalls = [{ name, arguments: JSON.stringify(input) }];
  return { kind: 'answer', toolCalls, promptTokens, completionTokens: 40 };
}

function nextStep({ steps, bodies }: Scenario, body: string): Behaviour {
  bodies.push(body);
  const step = steps.shift() ?? says('Nothing is left to do.');
  return typeof step === 'function' ? step(body) : step;
}

/** Starts a program and waits for its end, killed after the limit of a run. */
export async function execute(
  program: string,
  words: readonly string[],
  options: { readonly cwd: string; readonly env: Readonly<Record<string, string | undefined>> },
): Promise<Ended> {
  const child = spawn(program, words, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const timer = setTimeout(() => child.kill('SIGKILL'), RUN_LIMIT_MS);
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => void (err += chunk.toString()));
  const code = await new Promise<number | null>((done) => void child.on('close', done));
  clearTimeout(timer);
  return { code, out, err };
}

/** `node_modules` with a package: of a folder where it is, or of a new one below `folder`. */
export async function installed(
  wanted: string,
  given: string | undefined,
  folder: string,
): Promise<string> {
  const at = given === undefined ? join(folder, 'install') : resolve(given);
  if (given === undefined) {
    mkdirSync(at);
    writeFileSync(join(at, 'package.json'), '{"private":true}');
    console.log(`Installing ${wanted} (0.4 GB) in ${at}`);
    await promisify(execFile)('npm', ['install', '--no-audit', '--no-fund', wanted], { cwd: at });
  }
  return join(at, 'node_modules');
}
