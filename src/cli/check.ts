/**
 * `farebox check`: is the configuration valid, do the engines answer, is the database usable, can
 * the payment rails settle?
 * Changes nothing: a database that is not there yet is not made.
 */
import { access, constants } from 'node:fs/promises';
import { dirname } from 'node:path';
import { configuredEngines } from '../engines/engine-settings.ts';
import { type Config, describeConfig } from '../config/config.ts';
import { Engines } from '../engines/engines.ts';
import { llamaAvailable } from '../engines/llama/llama-engine.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { reasonOf, silentLog } from '../core/log.ts';
import { openStore } from '../db/db.ts';
import { type Command, type Invocation, printJson, requireConfig } from './command.ts';
import { table } from './table.ts';
import { paymentFindings } from './check-payments.ts';
import type { Finding } from './finding.ts';
import { isGiven } from './values.ts';

export const checkCommand: Command = {
  name: 'check',
  summary: 'Check the configuration, the database, every engine and payment rail',
  usage: 'check',
  details: `
Prints the settings in force, secrets masked, then one line for each thing that was checked. Ends
with exit code 1 when something is wrong. The server may run meanwhile.`,
  options: {},
  run: check,
};

async function check(invocation: Invocation): Promise<number> {
  const { console } = invocation;
  const config = await requireConfig(console);
  const findings = [
    ...(await databaseFindings(config)),
    ...(await engineFindings(config)),
    embeddedFinding(config),
    ...modelFindings(config),
    ...(await paymentFindings(config)),
  ];
  const ok = findings.every((finding) => finding.state !== 'wrong');
  if (isGiven(invocation, 'json')) {
    printJson(invocation, { ok, findings });
    return ok ? 0 : 1;
  }
  const columns = [{ title: 'CHECKED' }, { title: 'STATE' }, { title: 'SAYS' }] as const;
  const rows = findings.map(({ what, state, says }) => [what, state, says]);
  console.stdout.write(`${describeConfig(config)}\n${table(columns, rows)}`);
  return ok ? 0 : 1;
}

async function databaseFindings(config: Config): Promise<Finding[]> {
  const url = config.databaseUrl;
  if (url.startsWith('sqlite:') && !(await exists(url.slice('sqlite:'.length)))) {
    return [await folderFinding(dirname(url.slice('sqlite:'.length)))];
  }
  try {
    const store = await openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
    try {
      await store.query('SELECT 1 AS answer');
      return [{ what: 'database', state: 'ok', says: `${store.dialect} answers` }];
    } finally {
      await store.close();
    }
  } catch (error) {
    // The reason is the finding.
    return [{ what: 'database', state: 'wrong', says: reasonOf(error) }];
  }
}

/** The database comes with the first start, if its folder can be made. */
async function folderFinding(folder: string): Promise<Finding> {
  for (let path = folder; ; path = dirname(path)) {
    if (!(await exists(path))) continue;
    const isWritable = await can(path, constants.W_OK);
    const says = isWritable ? 'will be made by the first start' : `${path} is not writable`;
    return { what: 'database', state: isWritable ? 'note' : 'wrong', says };
  }
}

function exists(path: string): Promise<boolean> {
  return can(path, constants.F_OK);
}

async function can(path: string, mode: number): Promise<boolean> {
  try {
    await access(path, mode);
    return true;
  } catch {
    // The answer is no, whatever the reason.
    return false;
  }
}

async function engineFindings(config: Config): Promise<Finding[]> {
  const engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
  const probed = configuredEngines(config);
  engines.update(probed);
  try {
    const answers = await Promise.all(probed.map(({ id }) => probeFinding(config, engines, id)));
    const others = Object.entries(config.engines)
      .filter(([id]) => probed.every((engine) => engine.id !== id))
      .map(([id, { protocol }]): Finding => {
        const says = `speaks ${protocol}, which has no question to ask: try it with a request`;
        return { what: `engine ${id}`, state: 'note', says };
      });
    return [...answers, ...others];
  } finally {
    await engines.close();
  }
}

async function probeFinding(config: Config, engines: Engines, id: string): Promise<Finding> {
  const what = `engine ${id}`;
  const probe = await engines.probe(id);
  if (!probe.ok) return { what, state: 'wrong', says: probe.message };
  const wanted = config.models
    .flatMap((model) => model.replicas.map((replica) => ({ ...replica, id: model.id })))
    .filter((replica) => replica.engine === id)
    .map((replica) => replica.model ?? replica.id);
  const missing = [...new Set(wanted)].filter((model) => !probe.models.includes(model));
  const answered = `answers in ${Math.round(probe.latencyMs)} ms with ${probe.models.length} models`;
  if (missing.length === 0) return { what, state: 'ok', says: answered };
  // Some engines list nothing and serve everything, so this is no error.
  const says = `${answered}, but does not name ${missing.join(', ')}`;
  return { what, state: 'note', says };
}

function embeddedFinding(config: Config): Finding {
  const what = 'embedded engine';
  if (!config.embedded.enabled) return { what, state: 'note', says: 'switched off' };
  const available = llamaAvailable();
  return available.ok
    ? { what, state: 'ok', says: 'its package is installed' }
    : { what, state: 'note', says: available.reason };
}

function modelFindings(config: Config): Finding[] {
  const priced = config.models.length;
  if (priced === 0) {
    const says = 'none configured: embedded and discovered models are offered';
    return [{ what: 'models', state: 'note', says }];
  }
  return [{ what: 'models', state: 'ok', says: `${priced} configured` }];
}
