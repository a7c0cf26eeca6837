/** The program: reads the command line and runs one command. */
import { makeLasting } from './core/young-generation.ts';

// What a server of money writes, its children too, is for its own user only.
process.umask(0o077);

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
