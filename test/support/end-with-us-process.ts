/** Starts child processes as tests do, reports them, and waits to be killed. */
import { startAnvil } from '../rpc/anvil.ts';
import { startPostgres } from '../databases/postgres.ts';

await startAnvil(Number(process.argv[2]));
await startPostgres();
process.stdout.write('started\n');
setInterval(() => undefined, 1_000);
