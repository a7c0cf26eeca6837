/**
 * The entry of one worker of `farebox serve --workers`: a whole server that shares its port, its
 * database and the local engines with its siblings. It ends when the first process says so, or
 * when that process is gone; signals of the terminal are the first process's business.
 */
import { GivenEngines } from '../app/given-engines.ts';
import { startApp } from '../app.ts';
import { systemClock } from '../kernel/clock.ts';
import { systemIds } from '../kernel/ids.ts';
import type { Console } from './command.ts';
import { requireConfig } from './command.ts';
import { logFor, revision, watchSettings } from './serving.ts';
import type { FromWorker, ToWorker } from './worker-messages.ts';

const console: Console = {
  argv: process.argv.slice(2),
  env: process.env,
  cwd: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
  onSignal: (signal, listener) => process.on(signal, listener),
};
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => undefined);
}

const given = new GivenEngines();
const stop = Promise.withResolvers<undefined>();
let reload: () => void = () => undefined;
process.on('message', (message: ToWorker) => {
  if (message.kind === 'engines') given.take(message.news);
  else if (message.kind === 'reload') reload();
  else stop.resolve(undefined);
});
process.on('disconnect', () => stop.resolve(undefined));

const config = await requireConfig(console);
const log = logFor(console, config, console.argv.includes('--json'));
const app = await startApp({
  config,
  clock: systemClock(),
  ids: systemIds(),
  log,
  version: revision(),
  localEngines: (onChange) => given.onChange(onChange),
});
const watch = watchSettings(console, app, config, log);
reload = () => void watch.check(true);
process.send?.({ kind: 'listening', address: app.address } satisfies FromWorker);
await stop.promise;
watch.stop();
await app.close();
process.exit(0);
