/** `farebox request`: explains one request from its id. */
import { explainRequest } from '../account/account.ts';
import type { Cli } from './command.ts';
import { listing, table } from './terminal.ts';

type Explained = NonNullable<Awaited<ReturnType<typeof explainRequest>>>;

export function requestCommand(cli: Cli): void {
  cli.program
    .command('request')
    .description(`Explain a request: caller, tries, response, charge and next step

Failed and retried requests are recorded for retention.failureDays; others have a receipt.`)
    .argument('<id>', 'x-request-id of the response, or id of the completion')
    .action((id) =>
      cli.withStores(async ({ stores }) => {
        const request = await explainRequest({ stores }, id);
        if (request === undefined) {
          throw new Error(
            `There is no request "${id}": its record and its receipt were deleted, or never written`,
          );
        }
        cli.print(request, shown(request));
      }),
    );
}

function supplierText({ usd, lines }: NonNullable<Explained['supplier']>): string {
  const parts = lines.map(({ kind, quantity = '', usd: part }) => `${quantity} ${kind} ${part}`);
  return `${usd} USD: ${parts.map((part) => part.trim()).join(', ')}`;
}

function shown(request: Explained): string {
  const { account, apiKey, response, charge, supplier, tries, nextStep, prompt } = request;
  const key = apiKey === null ? '' : `, key ${apiKey.description || apiKey.id}`;
  const status = [response.status, response.code].filter((part) => part !== null).join(' ');
  const parameters = Object.entries(request.parameters).map(([name, value]) => `${name} ${value}`);
  const lines: readonly (readonly [string, string | null])[] = [
    ['Request', request.requestId],
    ['Time', request.createdAt],
    ['Caller', account === null ? 'anonymous' : `${account.name || account.id}${key}`],
    ['Route', request.route ?? request.kind],
    ['Model', request.model],
    ['Parameters', parameters.join(', ')],
    ['Prompt', prompt],
    ['Engine', request.engine],
    ['Response', `${status || 'unknown'} after ${response.tookMs} ms`],
    ['Message', response.message],
    ['Cause', response.cause],
    ['Charge', `${charge.usd} USD, ${charge.diem} DIEM`],
    ['Reason', charge.why],
    ['Supplier', supplier === null ? null : supplierText(supplier)],
    ['Next step', nextStep.operator],
    ['For the caller', nextStep.caller],
  ];
  const known = lines.flatMap(([name, value]) =>
    value === null || value === '' ? [] : [[name, value] as const],
  );
  if (tries.length === 0) return listing(known);
  const rows = tries.map((tried) => [
    `${tried.engine}/${tried.target}`,
    tried.startedAt.slice(11, 23),
    `${tried.tookMs} ms`,
    tried.status === null ? '-' : String(tried.status),
    tried.result,
    [tried.detail, tried.words].filter((text) => text !== '').join('; '),
  ]);
  return `${listing(known)}\n${table(['TRY', 'START', 'TOOK', 'HTTP', 'RESULT', 'REASON'], rows, ['TOOK'])}`;
}
