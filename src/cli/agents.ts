/**
 * `farebox agents`: creates an API key with a spend limit for a coding agent, and prints the agent's
 * settings or writes them to its file.
 */
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { type Config, reachableHost } from '../config/config.ts';
import { isoTime, systemClock } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { replaceFile } from '../core/replace-file.ts';
import { demoModels, MODEL_LIBRARY } from '../engines/embedded/llama-models.ts';
import { DEMO_MODEL } from '../engines/embedded/program-contract.ts';
import {
  type AgentSettings,
  CODEX_KEY_VARIABLE,
  claudeEnvironment,
  codexLines,
  withClaudeSettings,
  withCodexSettings,
} from './agent-settings.ts';
import { ACCOUNT, type Cli, httpAddress, shownUsd, usd } from './command.ts';
import { createKey, PERIOD, PERIOD_WORDS } from './keys.ts';
import { offeredModels } from './models.ts';
import type { Console } from './terminal.ts';

/** Bounds the cost of an agent that runs out of control. */
const DEFAULT_CAP_USD = '5';
/** Readable only by its owner, because the file contains a key. */
const FILE_MODE = 0o600;

/** The models that serve until the operator adds others. */
const EMBEDDED_IDS = new Set([
  DEMO_MODEL,
  ...[...demoModels(), ...MODEL_LIBRARY].map(({ id }) => id),
]);

interface Agent {
  readonly title: string;
  readonly file: (env: Console['env']) => string;
  /** Sets the settings in the text of the file. */
  readonly edit: (text: string | undefined, settings: AgentSettings) => string;
  /** Instructions for setting them by hand. */
  readonly lines: (settings: AgentSettings, file: string) => string;
}

const CODEX: Agent = {
  title: 'Codex',
  file: (env) => join(env['CODEX_HOME'] ?? join(homeOf(env), '.codex'), 'config.toml'),
  edit: withCodexSettings,
  lines: (settings, file) =>
    `# in ${file}, before the first table\n${codexLines(settings)}\n\n# in the shell\nexport ${CODEX_KEY_VARIABLE}=${settings.secret}\n`,
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
    .description(`Create a key for Codex, and print or write its settings

--write changes config.toml in CODEX_HOME or ~/.codex and stores the key in it. Without --write, the
command prints the lines for the file and a shell variable with the key.`);
  agentCommand(cli, 'claude', CLAUDE)
    .description(`Create a key for Claude Code, and print or write its settings

--write changes settings.json in CLAUDE_CONFIG_DIR or ~/.claude and stores the key in it. Without
--write, the command prints shell variables.`);
}

function agentCommand(cli: Cli, name: string, agent: Agent) {
  return cli
    .group('agents')
    .command(name)
    .option('--write', 'write the settings to the file, after a backup of it')
    .option('--model <name>', 'id or trait of the model that the agent uses', 'default')
    .option(
      '--url <url>',
      'URL of the server for the agent (default: its public or listen address)',
      httpAddress,
    )
    .option(...ACCOUNT)
    .option(
      '--limit-usd <amount>',
      `spend limit of the key per period, in USD (default: ${DEFAULT_CAP_USD})`,
      usd,
    )
    .option(...PERIOD, 'EPOCH')
    .action((options) =>
      cli.withAccount(options, async ({ config, stores, account }) => {
        const { limitUsd: capNano = usdToNano(DEFAULT_CAP_USD), period } = options;
        const isWritten = options.write === true;
        const file = resolve(cli.console.cwd, agent.file(cli.console.env));
        const offered = await settingsFor(config, options.model, options.url);
        const text = await readOptional(file);
        // Rejects a file that cannot be edited before a key is created.
        if (isWritten) edited(agent, file, text, { ...offered, secret: '' });
        const { key, secret } = await createKey(stores, config, {
          accountId: account.id,
          kind: 'INFERENCE',
          description: agent.title,
          expiresMs: undefined,
          limitPeriod: period,
          usdLimitNano: capNano,
          diemLimitNano: undefined,
          modelPrivacy: 'ALL',
          models: undefined,
          limits: {},
        });
        const settings = { ...offered, secret };
        const backup = isWritten
          ? await replaceSettings(file, edited(agent, file, text, settings), text !== undefined)
          : undefined;
        const { model, origin } = settings;
        const limitUsd = shownUsd(capNano);
        const about = `# Key ${key.id} for ${agent.title}, which may spend ${limitUsd} USD ${PERIOD_WORDS[period]}\n`;
        const written = `${agent.title} now uses ${model} of ${origin}. Changed file: ${file}\n${backup === undefined ? '' : `Backup: ${backup}\n`}`;
        cli.print(
          {
            agent: agent.title,
            keyId: key.id,
            secret,
            limitUsd,
            limitPeriod: period,
            model,
            url: origin,
            file,
            isWritten,
            backup: backup ?? null,
          },
          about + (isWritten ? written : `\n${agent.lines(settings, file)}`),
        );
      }),
    );
}

async function settingsFor(
  config: Config,
  named: string,
  url: string | undefined,
): Promise<Omit<AgentSettings, 'secret'>> {
  const { server, models } = await offeredModels(config);
  const texts = models.filter(({ type }) => type === 'text');
  const model = texts.find(({ id, traits }) => id === named || traits.includes(named));
  const small = texts.find(({ traits }) => traits.includes('fastest')) ?? model;
  // A better model replaces an embedded one later, so the agent gets the trait.
  const isFixed = (one: typeof model): boolean =>
    one?.id === named || !EMBEDDED_IDS.has(one?.id ?? '');
  const { id = named, contextTokens } = isFixed(model) ? (model ?? {}) : {};
  const { host, port } = config.listen;
  const listens = `http://${reachableHost(host)}:${port}`;
  return {
    origin: new URL(url ?? config.service.publicUrl ?? server ?? listens).origin,
    model: id,
    smallModel: isFixed(small) ? (small?.id ?? named) : 'fastest',
    contextTokens,
    title: config.service.title,
  };
}

async function readOptional(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    // An agent that was never configured has no file.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function edited(agent: Agent, file: string, text: string | undefined, settings: AgentSettings) {
  try {
    return agent.edit(text, settings);
  } catch (error) {
    throw new Error(`${file} was not changed: ${reasonOf(error)}`, { cause: error });
  }
}

/** Returns the path of the backup, if the file existed. */
async function replaceSettings(
  file: string,
  text: string,
  exists: boolean,
): Promise<string | undefined> {
  const stamp = isoTime(systemClock().nowMs()).replaceAll(/[:.]/g, '-');
  const backup = exists ? `${file}.${stamp}.bak` : undefined;
  await mkdir(dirname(file), { recursive: true });
  if (backup !== undefined) await copyFile(file, backup);
  await replaceFile(file, text, FILE_MODE);
  return backup;
}
