/**
 * `farebox agents`: makes a key with a cap for a coding agent, and prints the settings of the agent
 * or writes them into its file, beside a copy of the old one.
 */
import { copyFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { type Config, reachableHost } from '../config/config.ts';
import { isoTime, systemClock } from '../core/clock.ts';
import { type Nano, usdToNano } from '../core/money.ts';
import type { LimitPeriod } from '../identity/identity.ts';
import {
  type AgentSettings,
  CODEX_KEY_VARIABLE,
  claudeEnvironment,
  codexLines,
  withClaudeSettings,
  withCodexSettings,
} from './agent-settings.ts';
import { ACCOUNT, type Cli, findAccount, httpAddress, shownUsd, usd } from './command.ts';
import { createKey, PERIOD, PERIOD_WORDS } from './keys.ts';
import { offeredModels } from './models.ts';
import type { Console } from './terminal.ts';

/** What a key may spend unless somebody says otherwise: an agent that runs away costs no more. */
const DEFAULT_CAP_USD = '5';

interface Agent {
  readonly title: string;
  /** Where its settings stand. */
  readonly file: (env: Console['env']) => string;
  /** What the file says with the settings in it. */
  readonly edit: (text: string | undefined, settings: AgentSettings) => string;
  /** For somebody who sets them by hand. */
  readonly lines: (settings: AgentSettings, file: string) => string;
}

const CODEX: Agent = {
  title: 'Codex',
  file: (env) => join(env['CODEX_HOME'] ?? join(homeOf(env), '.codex'), 'config.toml'),
  edit: withCodexSettings,
  lines: (settings, file) =>
    `# ${file}, its first lines before any table\n${codexLines(settings)}\n\n# in the shell\nexport ${CODEX_KEY_VARIABLE}=${settings.secret}\n`,
};

const CLAUDE: Agent = {
  title: 'Claude Code',
  file: (env) => join(env['CLAUDE_CONFIG_DIR'] ?? join(homeOf(env), '.claude'), 'settings.json'),
  edit: withClaudeSettings,
  lines: (settings) =>
    Object.entries(claudeEnvironment(settings))
      .map(([name, value]) => `export ${name}=${value}\n`)
      .join(''),
};

function homeOf(env: Console['env']): string {
  return env['HOME'] ?? env['USERPROFILE'] ?? homedir();
}

export function agentsCommands(cli: Cli): void {
  agentCommand(cli, 'codex', CODEX)
    .description(`Make a key for Codex, and show or write its settings

The file is config.toml in CODEX_HOME or ~/.codex. With --write the key stands in it; without, the key
is printed for a variable of the shell.`);
  agentCommand(cli, 'claude', CLAUDE)
    .description(`Make a key for Claude Code, and show or write its settings

The file is settings.json in CLAUDE_CONFIG_DIR or ~/.claude; the settings are variables in its "env".`);
}

interface AgentOptions {
  readonly write?: true | undefined;
  readonly model: string;
  readonly url?: string | undefined;
  readonly account?: string | undefined;
  readonly limitUsd: Nano;
  readonly period: LimitPeriod;
}

function agentCommand(cli: Cli, name: string, agent: Agent) {
  return cli
    .group('agents')
    .command(name)
    .option('--write', 'put the settings into the file; what it was is copied beside it')
    .option('--model <name>', 'what the agent uses', 'default')
    .option(
      '--url <address>',
      'where the agent reaches the server (default: its public or listen address)',
      httpAddress,
    )
    .option(ACCOUNT[0], 'whose credit it spends (default: the owner)')
    .option(
      '--limit-usd <amount>',
      `the most that its key may spend in a period (default: ${DEFAULT_CAP_USD})`,
      usd,
    )
    .option(...PERIOD, 'EPOCH')
    .action((options) =>
      runFor(agent, cli, { ...options, limitUsd: options.limitUsd ?? usdToNano(DEFAULT_CAP_USD) }),
    );
}

async function runFor(agent: Agent, cli: Cli, options: AgentOptions): Promise<void> {
  const { env, cwd } = cli.console;
  const isWritten = options.write === true;
  const file = resolve(cwd, agent.file(env));
  await cli.withStores(async ({ config, stores }) => {
    const offered = await settingsOf(config, options);
    const known = await textOf(file);
    // A file that cannot be changed is rejected before there is a key.
    if (isWritten) edited(agent, file, known, { ...offered, secret: '' });
    const account = await findAccount(stores, options.account);
    const { key, secret } = await createKey(stores, config, {
      accountId: account.id,
      kind: 'INFERENCE',
      description: agent.title,
      expiresMs: undefined,
      limitPeriod: options.period,
      usdLimitNano: options.limitUsd,
      diemLimitNano: undefined,
      modelPrivacy: 'ALL',
      models: undefined,
      limits: {},
    });
    const settings = { ...offered, secret };
    let backup: string | undefined;
    if (isWritten) {
      const text = edited(agent, file, known, settings);
      backup = await replaceFile(file, text, known !== undefined);
    }
    const cap = { limitUsd: shownUsd(options.limitUsd), limitPeriod: options.period };
    const { model, origin } = settings;
    const about = `# A key for ${agent.title} (${key.id}), which may spend ${cap.limitUsd} USD ${PERIOD_WORDS[cap.limitPeriod]}\n`;
    const copy = backup === undefined ? '' : `What it was: ${backup}\n`;
    const uses = `${agent.title} uses ${model} of ${origin} from now on: ${file}\n${copy}`;
    const made = { agent: agent.title, keyId: key.id, secret, ...cap };
    cli.print(
      { ...made, model, url: origin, file, isWritten, backup: backup ?? null },
      `${about}${isWritten ? uses : `\n${agent.lines(settings, file)}`}`,
    );
  });
}

async function settingsOf(
  config: Config,
  { model: named, url }: AgentOptions,
): Promise<Omit<AgentSettings, 'secret'>> {
  const { server, models } = await offeredModels(config);
  const texts = models.filter(({ type }) => type === 'text');
  const model = texts.find(({ id, traits }) => id === named || traits.includes(named));
  const small = texts.find(({ traits }) => traits.includes('fastest'));
  const { host, port } = config.listen;
  const own = config.service.publicUrl ?? `http://${reachableHost(host)}:${port}`;
  const given = url ?? (config.service.publicUrl === undefined ? server : own);
  return {
    origin: new URL(given ?? own).origin,
    model: model?.id ?? named,
    smallModel: small?.id ?? model?.id ?? named,
    contextTokens: model?.contextTokens,
    title: config.service.title,
  };
}

/** The text of a file, or `undefined` where there is none. */
async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    // An agent that was never set up has no file.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function edited(agent: Agent, file: string, known: string | undefined, settings: AgentSettings) {
  try {
    return agent.edit(known, settings);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`${file} is left as it is: ${reason}`, { cause: error });
  }
}

/** Only its owner reads it, since a key is in it. */
const FILE_MODE = 0o600;

/** Writes the file in one step; gives the name of the copy of what it was. */
async function replaceFile(
  file: string,
  text: string,
  isThere: boolean,
): Promise<string | undefined> {
  const stamp = isoTime(systemClock().nowMs()).replaceAll(/[:.]/g, '-');
  const backup = isThere ? `${file}.${stamp}.bak` : undefined;
  await mkdir(dirname(file), { recursive: true });
  if (backup !== undefined) await copyFile(file, backup);
  const next = `${file}.${stamp}.new`;
  await writeFile(next, text, { mode: FILE_MODE });
  await rename(next, file);
  return backup;
}
