/** Transfers of a token to a receiver, from the history of its token account. */
import { address } from '@solana/kit';
import type { Received, ReceivedSearch } from '../rail.ts';
import type { SolanaChain } from './chain.ts';
import { associatedAccount } from './token.ts';

/** What nodes give at once. */
const PAGE_IDS = 1_000;

export async function solanaReceived(
  chain: SolanaChain,
  search: ReceivedSearch,
): Promise<readonly Received[]> {
  const { offer, fromHeight, isKnown, onProgress } = search;
  const account = await associatedAccount(address(offer.payTo), address(offer.asset));
  const latest = await chain.slot('confirmed');
  const found: Received[] = [];
  let before: string | undefined;
  for (;;) {
    const page = await chain.pageOfIds(account, PAGE_IDS, before);
    for (const { id, slot, hasRun } of page) {
      if (slot < fromHeight) return found;
      if (!hasRun || isKnown(id)) continue;
      const amountUnits = await chain.tokenChange(id, account);
      // What leaves the account is the operator's.
      if (amountUnits !== undefined && amountUnits <= 0n) continue;
      found.push({ transaction: id, height: slot, amountUnits });
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE_IDS) return found;
    before = last.id;
    onProgress?.(Number(latest - last.slot), Number(latest - fromHeight));
  }
}
