/** The program: reads the command line and runs one command. */
import { SECOND_MS, systemClock } from './core/clock.ts';
import { makeLasting } from './core/young-generation.ts';

/** Time for connections to close after the command has ended. */
const EXIT_MS = SECOND_MS;

// Only the user of the server may read its files and those of its child processes.
process.umask(0o077);

// A closed pipe, as of `farebox usage | head`, ends neither a command nor a server.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
}

const { runCommand } = await makeLasting(() => import('./cli/cli.ts'));
process.exitCode = await runCommand({
  argv: process.argv.slice(2),
  env: process.env,
  cwd: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: () => process.stdin,
  onSignal: (signal, listener) => process.on(signal, listener),
});

// A call to a peer that does not respond must not keep the process alive. Output is written before.
process.stdout.write('', () => {
  systemClock().after(EXIT_MS, () => process.exit());
});
