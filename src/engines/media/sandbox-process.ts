/**
 * Entry file of the process that starts media programs for a server, three for each recording;
 * `core/spawner.ts` contains the reason. This process stays small, so that starting a program is
 * cheap.
 *
 * It ends with the server, and its programs end with it.
 */
import { systemClock } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';
import type { SandboxResult, SandboxOrder } from './remote-sandbox.ts';
import { runSandboxed } from './sandbox.ts';

const clock = systemClock();
const stops = new Map<number, AbortController>();

process.once('disconnect', () => process.exit(0));
// Ctrl-C in a terminal signals the whole process group; the server stops this process itself.
process.on('SIGINT', () => undefined);
process.on('message', (message: unknown) => {
  const order = message as SandboxOrder; // from the server, of the same version
  if (order.type === 'stop') stops.get(order.id)?.abort();
  else void start(order);
});

async function start({ id, ...run }: SandboxOrder & { type: 'start' }): Promise<void> {
  const stop = new AbortController();
  stops.set(id, stop);
  let lines: string[] = [];
  const flush = (): void => {
    if (lines.length > 0) send({ id, type: 'lines', lines });
    lines = [];
  };
  const onLine = (line: string): void => {
    // Lines of one turn of the event loop are sent together.
    if (lines.push(line) === 1) setImmediate(flush);
  };
  try {
    const outcome = await runSandboxed({ ...run, clock, signal: stop.signal, onLine });
    flush();
    send({ id, type: 'ended', outcome });
  } catch (error) {
    // The program was stopped or could not be started; the requester receives the reason.
    send({ id, type: 'failed', reason: reasonOf(error) });
  } finally {
    stops.delete(id);
  }
}

function send(message: SandboxResult): void {
  if (process.connected) process.send?.(message);
}
