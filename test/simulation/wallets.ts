/** Owners of wallets, who pay with USDC. */
import { type Hex, toHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { transferTypedData } from '../../src/payments/evm/chain.ts';
import { OFFER, PAY_TO, seconds } from './chain.ts';
import { send } from './http-client.ts';
import type { Town } from './town.ts';
import { DefectFound, world } from './world.ts';

const UNITS_PER_USD = 1_000_000;
const VALID_SECONDS = 300;
const PATIENCE_MS = 60_000;
const MAX_TRIES = 6;
/** Some wallets cancel a payment so soon after they have signed it: mostly before or after a block. */
const MAX_CANCEL_MS = [2_500, 8_000];

/** Pays until the run is over, and repeats a payment that has no final response. */
export async function payByWallet(town: Town): Promise<void> {
  const { random } = world();
  const { chain } = town;
  const account = privateKeyToAccount(toHex(random.bytes(32)));
  chain.mint(account.address, BigInt(1_000 * UNITS_PER_USD));
  for (let count = 1; !town.isOver; count += 1) {
    await world().sleep(random.between(1_000, 10_000));
    const nonce = toHex(random.bytes(32));
    const units = random.between(5 * UNITS_PER_USD, 12 * UNITS_PER_USD);
    const header = await headerOf(account, units, nonce);
    if (random.once(3)) {
      const cancel = (): void => {
        chain.cancel(account.address, nonce);
        town.happens('cancellation');
      };
      world().schedule(random.between(1, random.pick(MAX_CANCEL_MS)), cancel);
    }
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const copies = random.once(6) ? 2 : 1;
      const replies = await Promise.all(
        Array.from({ length: copies }, () =>
          send(`${town.url()}/x402/top-up`, {
            headers: { 'payment-signature': header },
            patienceMs: random.once(4) ? random.between(1, 3_000) : PATIENCE_MS,
          }),
        ),
      );
      const statuses = replies.map((reply) => reply?.status ?? 0);
      world().note(`a wallet saw ${statuses.join(' and ')} for payment ${count}`);
      if (statuses.includes(200) && !chain.hasEverReceived(nonce)) {
        throw new DefectFound(`Payment ${count} is confirmed, and the chain never contained it`);
      }
      if (statuses.some((status) => status >= 200 && status < 500 && status !== 429)) break;
      await world().sleep(random.between(500, 5_000));
    }
  }
}

async function headerOf(
  account: ReturnType<typeof privateKeyToAccount>,
  units: number,
  nonce: Hex,
): Promise<string> {
  const authorization = {
    from: account.address,
    to: PAY_TO,
    value: String(units),
    validAfter: '0',
    validBefore: String(seconds() + VALID_SECONDS),
    nonce,
  };
  const typed = transferTypedData(OFFER, authorization as never); // viem converts the numbers
  const signature = await account.signTypedData(typed);
  const accepted = { ...OFFER, scheme: 'exact' };
  const envelope = { x402Version: 2, accepted, payload: { authorization, signature } };
  return Buffer.from(JSON.stringify(envelope)).toString('base64');
}
