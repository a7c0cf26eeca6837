/** `farebox check`: checks settings, database, engines, payments and nodes. Changes nothing. */
import { once } from 'node:events';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { request } from 'undici';
import { type Config, describeConfig, proxyOf, reachableHost } from '../config/config.ts';
import { SECOND_MS, systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { reasonOf, silentLog } from '../core/log.ts';
import { type Store, openProblem, openStore } from '../db/db.ts';
import { configuredEngines } from '../engines/registry.ts';
import { Engines } from '../engines/engines.ts';
import { type EngineProbe, probeEmbedded } from '../engines/embedded/embedded.ts';
import { enginePackages, missingPackages } from '../engines/embedded/packages.ts';
import { readPersonaFolder } from '../chat/personas/personas.ts';
import { SearchClient } from '../chat/web/web.ts';
import { type RailHealth, checkRails, checkStaking } from '../payments/payments.ts';
import { Rpc } from '../rpc/rpc.ts';
import { BASE_PATH } from '../server/server.ts';
import type { Cli } from './command.ts';
import { table } from './terminal.ts';

/** A server on the same machine answers at once or is not there. */
const ASK_LIMIT_MS = 2 * SECOND_MS;

interface Finding {
  readonly what: string;
  /** `note` is worth knowing and not wrong. */
  readonly state: 'ok' | 'note' | 'wrong';
  readonly says: string;
}

function finding(what: string, state: Finding['state'], says: string): Finding {
  return { what, state, says };
}

export function checkCommand(cli: Cli): void {
  cli.program
    .command('check')
    .description(`Check the settings, the address, the database, engines, RPC nodes, web search and payments

Prints the settings in force, secrets masked, then one line for each thing that was checked. Ends
with exit code 1 when something is wrong. Each embedded engine is started once; nothing is fetched. Each
configured RPC node gets one call, and the search provider gets one query. The server may run meanwhile.`)
    .action(async () => {
      const { config } = await cli.settings();
      const findings = await findingsOf(config);
      const ok = findings.every((finding) => finding.state !== 'wrong');
      const rows = findings.map(({ what, state, says }) => [what, state, says]);
      cli.print(
        { ok, findings },
        `${describeConfig(config)}\n${table(['CHECKED', 'STATE', 'SAYS'], rows)}`,
      );
      cli.exitCode = ok ? 0 : 1;
    });
}

/**
 * The findings about everything that a server of this configuration needs. `running` is the state
 * of embedded engines that run; without it each is started for a moment.
 */
export async function findingsOf(
  config: Config,
  running?: readonly EngineProbe[],
): Promise<Finding[]> {
  return [
    await listenFinding(config),
    dataFinding(config),
    await databaseFinding(config),
    ...(await engineFindings(config)),
    ...(await embeddedFindings(config, running)),
    modelFinding(config),
    ...(await personaFindings(config)),
    ...(await searchFindings(config)),
    ...(await nodeFindings(config)),
    ...(await paymentFindings(config)),
  ];
}

/** The file of a SQLite database that is not there: a check makes none. */
function missingFile({ databaseUrl: url }: Config): string | undefined {
  const file = url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : undefined;
  return file === undefined || existsSync(file) ? undefined : file;
}

function openDatabase({ databaseUrl: url }: Config): Promise<Store> {
  return openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
}

async function databaseFinding(config: Config): Promise<Finding> {
  const missing = missingFile(config);
  if (missing !== undefined) return folderFinding(dirname(missing));
  try {
    const store = await openDatabase(config);
    try {
      await store.query('SELECT 1 AS answer');
      return finding('database', 'ok', `${store.dialect} answers`);
    } finally {
      await store.close();
    }
  } catch (error) {
    // The reason is the finding.
    return finding('database', 'wrong', openProblem(error, config.databaseUrl) ?? reasonOf(error));
  }
}

/** The database comes with the first start, if its folder can be made. */
function folderFinding(folder: string): Finding {
  const problem = unwritable(folder);
  if (problem !== undefined) return finding('database', 'wrong', problem);
  return finding('database', 'note', 'will be made by the first start');
}

async function engineFindings(config: Config): Promise<Finding[]> {
  const engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
  const probed = configuredEngines(config);
  engines.update(probed);
  try {
    const answers = await Promise.all(probed.map(({ id }) => probeFinding(config, engines, id)));
    const others = Object.entries(config.engines)
      .filter(([id]) => probed.every((engine) => engine.id !== id))
      .map(([id, { protocol }]) => {
        const says = `speaks ${protocol}, which has no question to ask: try it with a request`;
        return finding(`engine ${id}`, 'note', says);
      });
    return [...answers, ...others];
  } finally {
    await engines.close();
  }
}

async function probeFinding(config: Config, engines: Engines, id: string): Promise<Finding> {
  const what = `engine ${id}`;
  const probe = await engines.probe(id);
  if (!probe.ok) return finding(what, 'wrong', probe.message);
  const wanted = config.models
    .flatMap((model) => model.replicas.map((replica) => ({ ...replica, id: model.id })))
    .filter((replica) => replica.engine === id)
    .map((replica) => replica.model ?? replica.id);
  const missing = [...new Set(wanted)].filter((model) => !probe.models.includes(model));
  const answered = `answers in ${Math.round(probe.latencyMs)} ms with ${probe.models.length} models`;
  if (missing.length === 0) return finding(what, 'ok', answered);
  // Some engines list nothing and serve everything, so this is no error.
  return finding(what, 'note', `${answered}, but does not name ${missing.join(', ')}`);
}

/** How each embedded engine is; what it lacks is named with the way to get it. */
async function embeddedFindings(
  config: Config,
  running: readonly EngineProbe[] | undefined,
): Promise<Finding[]> {
  if (!config.embedded.enabled) return [finding('embedded engines', 'note', 'switched off')];
  const probes =
    running ??
    (await probeEmbedded({
      config,
      clock: systemClock(),
      ids: systemIds(),
      log: silentLog,
      onChange: () => undefined,
    }));
  return probes.map(({ engine, needs, missing, problem, isStarting }) => {
    const what = `engine ${engine}`;
    const packages = needs.flatMap(enginePackages).join(', ') || 'ffmpeg';
    if (problem !== undefined) return finding(what, 'wrong', problem);
    if (isStarting === true) return finding(what, 'note', 'is being started');
    if (missing.length === 0) return finding(what, 'ok', `works with ${packages}`);
    const words = missing.map(missingPackages).join('; ');
    const next = config.embedded.download ? ', and so does the next start' : '';
    return finding(what, 'note', `${words}${next}`);
  });
}

/** The address is free, or a server of ours has it. */
async function listenFinding({ listen, service }: Config): Promise<Finding> {
  const { host, port } = listen;
  const server = createServer();
  try {
    await once(server.listen({ host, port }), 'listening');
    return finding('listen', 'ok', `${host}:${port} is free`);
  } catch (error) {
    const isOurs = await answersAsOurs(listen, service.name);
    if (isOurs) return finding('listen', 'note', `a server runs on ${host}:${port}`);
    return finding('listen', 'wrong', listenProblem(error, listen) ?? reasonOf(error));
  } finally {
    server.close();
  }
}

/** Why the address cannot be had, in words; `undefined` for any other error. */
export function listenProblem(
  error: unknown,
  { host, port }: Config['listen'],
): string | undefined {
  // Errors of the system have both.
  const { code = '', syscall, hostname } = error as NodeJS.ErrnoException & { hostname?: string };
  if (syscall !== 'listen' && (syscall !== 'getaddrinfo' || hostname !== host)) return undefined;
  const words: Readonly<Record<string, string>> = {
    EADDRINUSE: `Port ${port} of ${host} is taken by another program: stop it, or choose another with --port`,
    EACCES: `Port ${port} of ${host} is not allowed to this user: choose one above 1023 with --port`,
    EADDRNOTAVAIL: `This machine has no address ${host}: correct listen.host`,
    ENOTFOUND: `There is no address for the name ${host}: correct listen.host`,
  };
  return words[code];
}

async function answersAsOurs({ host, port }: Config['listen'], name: string): Promise<boolean> {
  try {
    const url = `http://${reachableHost(host)}:${port}${BASE_PATH}/models`;
    const { headers, body } = await request(url, { signal: AbortSignal.timeout(ASK_LIMIT_MS) });
    await body.dump();
    return headers[`x-${name}-version`] !== undefined;
  } catch {
    // Nobody, or somebody who speaks no HTTP.
    return false;
  }
}

/** The server must be able to write there; a check makes no folder. */
function dataFinding({ dataFolder }: Config): Finding {
  const problem = unwritable(dataFolder);
  if (problem !== undefined) return finding('data folder', 'wrong', problem);
  if (existsSync(dataFolder)) return finding('data folder', 'ok', dataFolder);
  return finding('data folder', 'note', `${dataFolder} will be made by the first start`);
}

/** What is asked of the folders that the first start makes. */
function unwritable(folder: string): string | undefined {
  let path = folder;
  while (!existsSync(path)) path = dirname(path);
  try {
    if (!statSync(path).isDirectory()) return `${path} is a file`;
    accessSync(path, constants.W_OK);
    return undefined;
  } catch {
    // Whatever the reason, nothing can be made there.
    return `${path} is not writable`;
  }
}

function modelFinding({ models }: Config): Finding {
  if (models.length > 0) return finding('models', 'ok', `${models.length} configured`);
  return finding('models', 'note', 'none configured: embedded and discovered models are offered');
}

/**
 * The folder of personas: the server does not start without it, and skips files that are invalid.
 */
async function personaFindings({ personas: { folder } }: Config): Promise<Finding[]> {
  if (folder === undefined) return [];
  try {
    const files = await readPersonaFolder(folder);
    const invalid = files.filter((file) => !file.ok);
    const says = `${folder} has ${files.length - invalid.length} personas`;
    return [
      finding('personas', 'ok', says),
      ...invalid.map(({ file, reason }) => finding(`persona ${file}`, 'wrong', reason)),
    ];
  } catch (error) {
    return [finding('personas', 'wrong', `personas.folder cannot be read: ${reasonOf(error)}`)];
  }
}

/** Runs one search: providers have no free call that proves address and key. */
async function searchFindings({ search }: Config): Promise<Finding[]> {
  if (search === undefined) return [];
  const client = new SearchClient(search, silentLog);
  try {
    const what = `search ${search.provider}`;
    const outcome = await client.search('test');
    if (outcome.ok) return [finding(what, 'ok', `found ${outcome.results.length} results`)];
    const says = `${outcome.reason}: ${outcome.cause ?? 'check search.url'}`;
    return [finding(what, 'wrong', says)];
  } finally {
    await client.close();
  }
}

/** Calls each configured RPC node once. Public nodes are not called. */
async function nodeFindings({ rpc: settings, proxies }: Config): Promise<Finding[]> {
  if (!settings.enabled) return [];
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const rpc = new Rpc(settings, { ...parts, proxyOf: (url) => proxyOf(proxies, url) });
  try {
    const nodes = await rpc.probeNodes();
    return nodes.map(({ network, node, problem }) => {
      const what = `rpc ${node ?? network}`;
      if (problem !== undefined) return finding(what, 'wrong', problem);
      return finding(what, 'ok', `answers for ${network}`);
    });
  } finally {
    await rpc.close();
  }
}

const COINS = {
  base: { coin: 'ETH', decimals: 18 },
  solana: { coin: 'SOL', decimals: 9 },
} as const;
type RailName = keyof typeof COINS;
/** What a person needs of a balance that pays fees. */
const SHOWN_DECIMALS = 6;

/** Checks node, chain and fee key of each payment rail. Sends no transaction. */
async function paymentFindings(config: Config): Promise<Finding[]> {
  const { payments, limits } = config;
  const settings = { ...payments, minimumBalanceUsd: Number(limits.minimumCreditUsd) };
  const asked = { settings, clock: systemClock(), log: silentLog };
  const rails = await checkRails({
    ...asked,
    openStore: async () => (missingFile(config) === undefined ? openDatabase(config) : undefined),
  });
  if (rails.length === 0) {
    return [finding('payments', 'note', 'no rail configured: API keys work alone')];
  }
  const findings = rails.map((rail) =>
    railFinding(rail.network === payments.base?.network ? 'base' : 'solana', rail),
  );
  if (payments.staking === undefined) return findings;
  return [...findings, stakingFinding(await checkStaking(asked))];
}

function stakingFinding(problem: string | undefined): Finding {
  if (problem === undefined) return finding('payments staking', 'ok', 'its stakes can be read');
  const says = `The stake of 23:50 UTC of yesterday cannot be read, so nobody has daily credit: ${problem}`;
  return finding('payments staking', 'wrong', says);
}

function railFinding(name: RailName, rail: RailHealth): Finding {
  const isRight = rail.problems.length === 0;
  const says = isRight ? [`settles on ${rail.network}`] : rail.problems;
  const state = isRight ? 'ok' : rail.isReady ? 'note' : 'wrong';
  return finding(`payments ${name}`, state, [...says, ...heldBy(name, rail)].join('; '));
}

/** Whose balance pays for settlements; with an external facilitator it is nobody's here. */
function heldBy(name: RailName, { gasAddress, gasBalance }: RailHealth): string[] {
  if (gasAddress === undefined || gasBalance === undefined) return [];
  const { coin, decimals } = COINS[name];
  return [`${gasAddress} holds ${shownAmount(gasBalance, decimals)} ${coin} for fees`];
}

/** Cut, not rounded: a balance is never shown larger than it is. */
function shownAmount(units: bigint, decimals: number): string {
  const scale = 10n ** BigInt(decimals);
  const fraction = String(units % scale)
    .padStart(decimals, '0')
    .slice(0, SHOWN_DECIMALS);
  return `${units / scale}.${fraction}`;
}
