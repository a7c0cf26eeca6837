/**
 * `farebox credit` and `farebox debit`: money movements by the operator. A movement with a reference
 * is idempotent: a repeat changes nothing, and another movement with the same reference is rejected.
 */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { type Nano, ZERO } from '../core/money.ts';
import { TransactionReference } from '../http/transaction-reference.ts';
import {
  ACCOUNT,
  type Cli,
  UsageError,
  findAccount,
  openedAccount,
  shortText,
  shownUsd,
  usd,
} from './command.ts';

const MAX_NOTE_CHARACTERS = 200;

export function creditCommands(cli: Cli): void {
  movementCommand(cli, 'credit').description(`Add prepaid credit to an account

Example: farebox credit 25 --account alice --reference invoice-118`);
  movementCommand(cli, 'debit').description(`Take unspent credit back from an account

Takes only credit that running requests do not hold. The balance cannot become negative.`);
}

function movementCommand(cli: Cli, direction: 'credit' | 'debit') {
  const isCredit = direction === 'credit';
  return cli.program
    .command(direction)
    .argument('<amount>', 'amount in USD, such as 25 or 0.50', (text) => amountOf(text, isCredit))
    .option(...ACCOUNT)
    .option('--note <text>', 'text for the account statement', shortText(MAX_NOTE_CHARACTERS))
    .option(
      '--reference <text>',
      'your own id of this movement; a repeat with the same id and amount changes nothing',
      referenceOf,
    )
    .action((amount, { account: wanted, note, reference }) =>
      cli.withStores(async ({ stores, ids }) => {
        const { ledger } = stores;
        const account = await (isCredit ? openedAccount : findAccount)(stores, wanted);
        const result = await ledger.moveOnce({
          direction,
          accountId: account.id,
          amountNano: amount,
          reference: reference ?? ids.uuid(),
          note,
        });
        if (result.state === 'insufficient') {
          const { usdNano } = await ledger.balances(account.id);
          throw new Error(
            `The account "${account.name}" has ${shownUsd(usdNano)} USD including holds of running requests, so ${shownUsd(amount)} USD cannot be taken; use a smaller amount`,
          );
        }
        if (result.state === 'reused') {
          const { accountId, amountNano } = result.was;
          throw new Error(
            `The reference "${reference ?? ''}" belongs to a ${direction} of ${shownUsd(amountNano)} USD to ${accountId}, so nothing was changed; use another reference`,
          );
        }
        const isRepeat = result.state === 'repeated';
        const [amountUsd, balanceUsd] = [shownUsd(amount), shownUsd(result.balanceNano)];
        const moved = `${amountUsd} USD ${isCredit ? 'added to' : 'taken from'} the account "${account.name}"`;
        cli.print(
          { accountId: account.id, amountUsd, balanceUsd, isRepeat },
          isRepeat
            ? `Nothing changed: ${moved} earlier with this reference; the balance was then ${balanceUsd} USD\n`
            : `${moved}; the balance is ${balanceUsd} USD\n`,
        );
      }),
    );
}

function referenceOf(text: string): string {
  if (TransactionReference.safeParse(text).success) return text;
  throw new InvalidArgumentError(
    'must have 1 to 100 letters, digits, dots, colons, dashes or underscores',
  );
}

function amountOf(text: string, isCredit: boolean): Nano {
  if (/^-[\d.]/.test(text)) {
    const other = isCredit ? 'debit' : 'credit';
    throw new UsageError(
      `The amount must be above zero; "farebox ${other} ${text.slice(1)}" moves money in the other direction`,
    );
  }
  const amount = usd(text);
  if (amount > ZERO) return amount;
  throw new InvalidArgumentError('must be above zero');
}
