/** `farebox check`: checks settings, database, engines, payments and RPC nodes. Changes nothing. */
import { evmNetwork } from '../core/evm-networks.ts';
import { once } from 'node:events';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { type Config, describeConfig, proxyOf } from '../config/config.ts';
import {
  Catalog,
  type CatalogModel,
  isLoss,
  lossText,
  marginsOf,
  soldModel,
} from '../catalog/catalog.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { reasonOf, silentLog } from '../core/log.ts';
import { type Store, openProblem, openStore, pendingMigrations } from '../db/db.ts';
import { listedName } from '../engines/probe.ts';
import { configuredEngines } from '../engines/registry.ts';
import { Engines } from '../engines/engines.ts';
import { type EngineProbe, probeEmbedded, probeProvider } from '../engines/embedded/embedded.ts';
import { enginePackages, missingPackages } from '../engines/embedded/packages.ts';
import { readPersonaFolder } from '../chat/personas/personas.ts';
import { SearchClient } from '../chat/web/web.ts';
import { type RailHealth, checkRails, checkStaking, isEvm } from '../payments/payments.ts';
import { Rpc, RpcFigures } from '../rpc/rpc.ts';
import { MIGRATIONS } from '../server/migrations.ts';
import { type Cli, missingFile } from './command.ts';
import { findServer } from './models.ts';
import { table } from './terminal.ts';

const PARTS = { clock: systemClock(), ids: systemIds(), log: silentLog };

interface Finding {
  readonly what: string;
  /** `note` is information, not a problem. */
  readonly state: 'ok' | 'note' | 'wrong';
  readonly says: string;
}

function finding(what: string, state: Finding['state'], says: string): Finding {
  return { what, state, says };
}

export function checkCommand(cli: Cli): void {
  cli.program
    .command('check')
    .description(`Check the configuration, the database, engines, RPC nodes, web search and payments

Prints one line per check, then the configuration in force with masked secrets. Exits with code 1 if a
check fails. Starts each embedded engine once and downloads nothing. Calls each configured RPC node
for its newest block, its history and its methods, and runs one web search. Sends hosted engines a chat without messages, which they reject. The server may run meanwhile.`)
    .action(async () => {
      const { config } = await cli.settings();
      const findings = await findingsOf(config);
      const ok = findings.every(({ state }) => state !== 'wrong');
      const rows = findings.map(({ what, state, says }) => [what, state, says]);
      cli.print(
        { ok, findings },
        `${table(['CHECK', 'STATE', 'RESULT'], rows)}\n${describeConfig(config)}`,
      );
      cli.exitCode = ok ? 0 : 1;
    });
}

/**
 * Checks everything that a server of this configuration needs. `running`: the state of embedded
 * engines that already run; without it, each engine is started for the check.
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
    ...marginFindings(config),
    ...(await personaFindings(config)),
    ...(await searchFindings(config)),
    ...(await nodeFindings(config)),
    ...(await paymentFindings(config)),
  ];
}

function openDatabase({ databaseUrl: url }: Config): Promise<Store> {
  return openStore({ url, ...PARTS });
}

async function databaseFinding(config: Config): Promise<Finding> {
  const missing = missingFile(config);
  if (missing !== undefined) {
    const problem = unwritable(dirname(missing));
    if (problem !== undefined) return finding('database', 'wrong', problem);
    return finding('database', 'note', 'the first start creates it');
  }
  try {
    const store = await openDatabase(config);
    try {
      const { length: steps } = await pendingMigrations(store, MIGRATIONS);
      const responds = `${store.dialect} responds`;
      if (steps === 0) return finding('database', 'ok', responds);
      const runs = `${steps} migration step${steps === 1 ? '' : 's'}`;
      return finding('database', 'note', `${responds}; the next start runs ${runs}`);
    } finally {
      await store.close();
    }
  } catch (error) {
    // The reason becomes the finding.
    return finding('database', 'wrong', openProblem(error, config.databaseUrl) ?? reasonOf(error));
  }
}

async function engineFindings(config: Config): Promise<Finding[]> {
  const engines = new Engines(PARTS);
  const probed = configuredEngines(config);
  engines.update(probed);
  try {
    const findings = await Promise.all(probed.map(({ id }) => probeFinding(config, engines, id)));
    const others = Object.entries(config.engines)
      .filter(([id, { provider }]) => {
        return provider === undefined && probed.every((engine) => engine.id !== id);
      })
      .map(([id, { protocol }]) => {
        const says = `not tested, because the protocol ${protocol} has no status call; send it a request`;
        return finding(`engine ${id}`, 'note', says);
      });
    return [...findings, ...others];
  } finally {
    await engines.close();
  }
}

async function probeFinding(config: Config, engines: Engines, id: string): Promise<Finding> {
  const what = `engine ${id}`;
  const probe = await engines.probe(id);
  const hasNoList = !probe.ok && (probe.status === 404 || probe.status === 405);
  if (!probe.ok && !hasNoList) return finding(what, 'wrong', probe.message);
  const chats = await chatProbes(config, engines, id);
  const refusing = chats.filter(({ state }) => state === 'unsupported').map(({ model }) => model);
  const [first] = refusing;
  if (first !== undefined) {
    const isServed = (await engines.probeChat(id, '/responses', first)) === 'served';
    const says = `does not serve ${refusing.join(', ')} by chat completions`;
    if (!isServed) return finding(what, 'wrong', `${says}; remove the replica`);
    const line = `${says}, but by the Responses API, which the server then uses; engines.${id}.protocol: responses saves the first attempt`;
    return finding(what, 'note', line);
  }
  if (!probe.ok) {
    // The deployment URLs of Azure have no list.
    const noList = 'responds, but has no list of models';
    if (chats.some(({ state }) => state === 'served')) {
      return finding(what, 'note', `${noList}; the names of models are not checked`);
    }
    if (chats.length === 0 && isHosted(config, id)) {
      return finding(what, 'note', `${noList}, and no text model uses it; send it a request`);
    }
    const missing = chats.filter(({ state }) => state === 'missing').map(({ model }) => model);
    const lacks = missing.length === 0 ? '' : `, and it does not serve ${missing.join(', ')}`;
    return finding(what, 'wrong', `${probe.message}${lacks}`);
  }
  return listFinding(config, id, probe);
}

/** A provider package lists the models of its provider, with the key of the configuration. */
async function providerFinding(config: Config, id: string): Promise<Finding> {
  const what = `engine ${id}`;
  const probe = await probeProvider({ config, ...PARTS, onChange: () => undefined }, id);
  if (typeof probe === 'string') return finding(what, 'wrong', probe);
  if (probe.ok) return listFinding(config, id, probe);
  const { status, message } = probe;
  if (status === 404) {
    const says = 'starts; the provider has no list of models, so that the key is not verified';
    return finding(what, 'note', says);
  }
  const isKey = status === 401 || status === 403;
  return finding(what, 'wrong', isKey ? `${message}; check the key` : message);
}

function listFinding(
  config: Config,
  id: string,
  probe: { readonly latencyMs: number; readonly models: readonly string[] },
): Finding {
  const what = `engine ${id}`;
  const wanted = wantedModels(config, id).map(({ model }) => listedName(model));
  const missing = [...new Set(wanted)].filter((model) => !probe.models.includes(model));
  const count = probe.models.length;
  const responds = `responds in ${Math.round(probe.latencyMs)} ms and lists ${count} ${count === 1 ? 'model' : 'models'}`;
  if (missing.length === 0) return finding(what, 'ok', responds);
  // Not an error: some engines serve models that they do not list.
  return finding(what, 'note', `${responds}, but not ${missing.join(', ')}`);
}

interface WantedModel {
  readonly model: string;
  readonly isText: boolean;
}

function wantedModels(config: Config, id: string): WantedModel[] {
  return config.models.flatMap((model) =>
    model.replicas
      .filter((replica) => replica.engine === id)
      .map((replica) => ({ model: replica.model ?? model.id, isText: model.type === 'text' })),
  );
}

const MAX_CHAT_PROBES = 8;

function isHosted(config: Config, id: string): boolean {
  const { apiKey, headers = {} } = config.engines[id] ?? {};
  return apiKey !== undefined || Object.keys(headers).length > 0;
}

/** Only hosted engines, which have a key, are probed: a local one could load the model. */
async function chatProbes(config: Config, engines: Engines, id: string) {
  if (config.engines[id]?.protocol !== 'openai' || !isHosted(config, id)) return [];
  const models = wantedModels(config, id).filter(({ isText }) => isText);
  return Promise.all(
    models.slice(0, MAX_CHAT_PROBES).map(async ({ model }) => {
      return { model, state: await engines.probeChat(id, '/chat/completions', model) };
    }),
  );
}

async function embeddedFindings(
  config: Config,
  running: readonly EngineProbe[] | undefined,
): Promise<Finding[]> {
  const off = config.embedded.enabled ? [] : [finding('embedded engines', 'note', 'switched off')];
  let probes: readonly EngineProbe[];
  try {
    probes = running ?? (await probeEmbedded({ config, ...PARTS, onChange: () => undefined }));
  } catch (error) {
    // The reason becomes the finding.
    const says = `embedded engines cannot be tested: ${reasonOf(error)}: set TMPDIR to a folder that this user can write`;
    return [finding('temporary files', 'wrong', says), ...off];
  }
  const findings = probes.map(async ({ engine, needs, missing, problem, isStarting }) => {
    const isReady = problem === undefined && missing.length === 0;
    const isProvider = config.engines[engine]?.provider !== undefined;
    if (isReady && isProvider) return providerFinding(config, engine);
    const what = `engine ${engine}`;
    const packages = needs.flatMap(enginePackages).join(', ') || 'ffmpeg';
    if (problem !== undefined) return finding(what, 'wrong', problem);
    if (isStarting === true) return finding(what, 'note', 'is starting');
    if (missing.length === 0) return finding(what, 'ok', `works with ${packages}`);
    const words = missing.map(missingPackages).join('; ');
    const next = config.embedded.download ? ', and so does the next start' : '';
    return finding(what, 'note', `${words}${next}`);
  });
  return [...(await Promise.all(findings)), ...off];
}

/** The address must be free, or in use by a Farebox server. */
async function listenFinding(config: Config): Promise<Finding> {
  const { host, port } = config.listen;
  const server = createServer();
  try {
    await once(server.listen({ host, port }), 'listening');
    return finding('listen', 'ok', `${host}:${port} is free`);
  } catch (error) {
    if ((await findServer(config)) !== undefined) {
      return finding('listen', 'note', `a server runs on ${host}:${port}`);
    }
    return finding('listen', 'wrong', listenProblem(error, config.listen) ?? reasonOf(error));
  } finally {
    server.close();
  }
}

/** Explains why the server cannot listen; `undefined` for any other error. */
export function listenProblem(
  error: unknown,
  { host, port }: Config['listen'],
): string | undefined {
  // System errors have these fields.
  const { code = '', syscall, hostname } = error as NodeJS.ErrnoException & { hostname?: string };
  if (syscall !== 'listen' && (syscall !== 'getaddrinfo' || hostname !== host)) return undefined;
  const words: Readonly<Record<string, string>> = {
    EADDRINUSE: `Another program uses port ${port} of ${host}: stop it, or choose another port with --port`,
    EACCES: `This user may not listen on port ${port} of ${host}: choose a port above 1023 with --port`,
    EADDRNOTAVAIL: `This machine has no address ${host}: correct listen.host`,
    ENOTFOUND: `The host name ${host} has no address: correct listen.host`,
  };
  return words[code];
}

function dataFinding({ dataFolder }: Config): Finding {
  const problem = unwritable(dataFolder);
  if (problem !== undefined) return finding('data folder', 'wrong', problem);
  if (existsSync(dataFolder)) return finding('data folder', 'ok', dataFolder);
  return finding('data folder', 'note', `${dataFolder}: the first start creates it`);
}

/** Explains why the server cannot write to a folder or create it; `undefined` if it can. */
function unwritable(folder: string): string | undefined {
  let path = folder;
  while (!existsSync(path)) path = dirname(path);
  try {
    if (!statSync(path).isDirectory()) {
      return `${path} is a file: choose another folder with --data or FAREBOX_DATA`;
    }
    accessSync(path, constants.W_OK);
    return undefined;
  } catch {
    // Every reason has the same remedy.
    return `${path} is not writable: change its permissions, or choose another folder with --data or FAREBOX_DATA`;
  }
}

function modelFinding({ models }: Config): Finding {
  if (models.length > 0) return finding('models', 'ok', `${models.length} configured`);
  return finding('models', 'note', 'none configured; embedded and discovered models are offered');
}

/** List prices, and prices of plans, below the cost of a supplier. */
function marginFindings(config: Config): Finding[] {
  const models = new Catalog({ settings: config, clock: PARTS.clock }).models();
  const lossesOf = (model: CatalogModel, name: string) =>
    marginsOf(model)
      .filter(isLoss)
      .map((loss) => finding(name, 'wrong', lossText(loss)));
  const plans = [...config.resolvedPlans.byName];
  return models.flatMap((model) => [
    ...lossesOf(model, `price of ${model.id}`),
    ...plans.flatMap(([name, { prices: plan }]) => {
      const sold = soldModel(model, { account: undefined, plan });
      return sold === model ? [] : lossesOf(sold, `price of ${model.id}, plan ${name}`);
    }),
  ]);
}

async function personaFindings({ personas: { folder } }: Config): Promise<Finding[]> {
  if (folder === undefined) return [];
  try {
    const files = await readPersonaFolder(folder);
    const invalid = files.filter((file) => !file.ok);
    const says = `${folder} has ${files.length - invalid.length} valid personas`;
    return [
      finding('personas', 'ok', says),
      ...invalid.map(({ file, reason }) => finding(`persona ${file}`, 'wrong', reason)),
    ];
  } catch (error) {
    return [finding('personas', 'wrong', `personas.folder cannot be read: ${reasonOf(error)}`)];
  }
}

/** Runs one search, because providers have no free call that verifies URL and key. */
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

/** Calls each configured RPC node and prints its capabilities, but not public nodes. */
async function nodeFindings({ rpc: settings, proxies }: Config): Promise<Finding[]> {
  if (!settings.enabled) return [];
  const rpc = new Rpc(settings, {
    ...PARTS,
    figures: new RpcFigures(),
    proxyOf: (url) => proxyOf(proxies, url),
  });
  try {
    const nodes = await rpc.probeNodes();
    return nodes.map(({ network, node, problem, map }) => {
      const what = `rpc ${node ?? network}`;
      if (problem !== undefined) return finding(what, 'wrong', problem);
      return finding(what, 'ok', [`responds for ${network}`, ...map].join('; '));
    });
  } finally {
    await rpc.close();
  }
}

/** Checks node, chain and fee key of each payment rail. Sends no transaction. */
async function paymentFindings(config: Config): Promise<Finding[]> {
  const { payments, limits } = config;
  const settings = { ...payments, minimumBalanceUsd: Number(limits.minimumCreditUsd) };
  const rails = await checkRails({
    ...PARTS,
    settings,
    openStore: async () => (missingFile(config) === undefined ? openDatabase(config) : undefined),
  });
  if (rails.length === 0) {
    return [
      finding(
        'payments',
        'note',
        'no payment network is configured; only accounts with credit can pay',
      ),
    ];
  }
  const findings = rails.map((rail) => railFinding(railName(rail.network, payments), rail));
  if (payments.staking === undefined) return findings;
  const problem = await checkStaking({ ...PARTS, settings });
  const staking =
    problem === undefined
      ? finding('payments staking', 'ok', 'stakes can be read')
      : finding(
          'payments staking',
          'wrong',
          `Yesterday's stakes (23:50 UTC) cannot be read, so no account has daily credit: ${problem}`,
        );
  return [...findings, staking];
}

const ETH_DECIMALS = 18;
const SOL_DECIMALS = 9;
const SHOWN_DECIMALS = 6;

/** The section of a rail, and for one of `networks` its id. */
function railName(network: string, { base, solana }: Config['payments']): string {
  if (network === base?.network) return 'base';
  return network === solana?.network ? 'solana' : network;
}

function railFinding(name: string, rail: RailHealth): Finding {
  const isRight = rail.problems.length === 0;
  const says = isRight ? [`settles on ${rail.network}`] : rail.problems;
  const state = isRight ? 'ok' : rail.isReady ? 'note' : 'wrong';
  return finding(`payments ${name}`, state, [...says, ...feeBalance(rail)].join('; '));
}

/** The balance that pays network fees; an external facilitator pays them itself. */
function feeBalance({ network, gasAddress, gasBalance }: RailHealth): string[] {
  if (gasAddress === undefined || gasBalance === undefined) return [];
  const decimals = isEvm(network) ? ETH_DECIMALS : SOL_DECIMALS;
  const coin = isEvm(network) ? (evmNetwork(network)?.coin ?? 'of its coin') : 'SOL';
  const scale = 10n ** BigInt(decimals);
  // Truncated, so that the output never exceeds the balance.
  const fraction = String(gasBalance % scale)
    .padStart(decimals, '0')
    .slice(0, SHOWN_DECIMALS);
  return [`${gasAddress} has ${gasBalance / scale}.${fraction} ${coin} for network fees`];
}
