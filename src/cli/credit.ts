/**
 * `farebox credit` and `farebox debit`: the operator's own money movements, posted like every other. A
 * reference makes a movement safe to repeat: the same movement is shown again and moves nothing,
 * another one with its reference is rejected.
 */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { type Nano, ZERO } from '../core/money.ts';
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
const REFERENCE = /^[A-Za-z0-9._:-]{1,100}$/;

type Direction = 'credit' | 'debit';

export function creditCommands(cli: Cli): void {
  movement(cli, 'credit').description(`Add prepaid credit to an account

Example: farebox credit 25 --account alice --reference invoice-118`);
  movement(cli, 'debit').description(`Take unspent credit back from an account

Takes what is posted and not held by a running request; never below zero.`);
}

interface Movement {
  readonly amount: Nano;
  readonly account?: string | undefined;
  readonly note?: string | undefined;
  readonly reference?: string | undefined;
}

function movement(cli: Cli, direction: Direction) {
  return cli.program
    .command(direction)
    .argument('<amount>', 'Give one amount in USD', (text) => amountOf(text, direction))
    .option(ACCOUNT[0], 'whose balance: an id, a name or a wallet address (default: the owner)')
    .option('--note <text>', "shown in the account's transactions", shortText(MAX_NOTE_CHARACTERS))
    .option(
      '--reference <text>',
      'your own id of this movement: repeated with the same amount it changes nothing',
      referenceOf,
    )
    .action((amount, options) => move(cli, direction, { amount, ...options }));
}

function move(cli: Cli, direction: Direction, wanted: Movement): Promise<void> {
  const { amount, note, reference } = wanted;
  return cli.withStores(async ({ stores, ids }) => {
    const { ledger } = stores;
    const find = direction === 'credit' ? openedAccount : findAccount;
    const account = await find(stores, wanted.account);
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
        `The account "${account.name}" has ${shownUsd(usdNano)} USD, less what running requests hold; take ${shownUsd(amount)} USD or less of what is free`,
      );
    }
    if (result.state === 'reused') {
      const { accountId, amountNano } = result.was;
      throw new Error(
        `The reference "${reference ?? ''}" stands for a ${direction} of ${shownUsd(amountNano)} USD to ${accountId}; nothing was changed. Give this movement a reference of its own`,
      );
    }
    const isRepeat = result.state === 'repeated';
    const [amountUsd, balanceUsd] = [shownUsd(amount), shownUsd(result.balanceNano)];
    const verb = direction === 'credit' ? 'added to' : 'taken from';
    cli.print(
      { accountId: account.id, amountUsd, balanceUsd, isRepeat },
      isRepeat
        ? `${amountUsd} USD were ${verb} the account "${account.name}" under this reference before; its balance was ${balanceUsd} USD then, and nothing was changed now\n`
        : `${amountUsd} USD ${verb} the account "${account.name}"; its balance is ${balanceUsd} USD\n`,
    );
  });
}

function referenceOf(text: string): string {
  if (REFERENCE.test(text)) return text;
  throw new InvalidArgumentError('has 1 to 100 letters, digits, dots, colons or dashes');
}

function amountOf(text: string, direction: Direction): Nano {
  if (/^-[\d.]/.test(text)) {
    const other = direction === 'credit' ? 'debit' : 'credit';
    throw new UsageError(
      `The amount must be above zero; use "farebox ${other} ${text.slice(1)}" for the other direction`,
    );
  }
  const amount = usd(text);
  if (amount > ZERO) return amount;
  throw new InvalidArgumentError('must be above zero');
}
