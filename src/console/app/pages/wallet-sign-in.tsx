/** Signing in with a wallet of this browser; its code is loaded when somebody asks for it. */
import { useSignal } from '@preact/signals';
import { RAILS } from '../page-facts.ts';
import { Refusal, useAction } from '../parts/form.tsx';
import { signInByWallet, signInChallenge } from '../session.ts';
import type { ConnectedWallet, WalletChoice } from '../wallets/wallet.ts';
import { WalletList } from './wallet-list.tsx';

export function WalletSignIn({ signedIn }: { signedIn: () => void }) {
  const isOpen = useSignal(false);
  const action = useAction();
  const signIn = async (wallet: ConnectedWallet): Promise<void> => {
    const [challenge, { signInHeader }] = await Promise.all([
      signInChallenge(),
      import('../wallets/sign-in.ts'),
    ]);
    if (challenge === null) throw new Error('This service takes no wallets');
    await signInByWallet(await signInHeader(wallet, challenge));
  };
  const choose = async (choice: WalletChoice): Promise<void> => {
    if (await action.run(async () => signIn(await choice.connect()))) signedIn();
  };
  return (
    <section class="by-wallet">
      <p class="or">
        <span>or</span>
      </p>
      {isOpen.value ? (
        <WalletList isBusy={action.isRunning} choose={(choice) => void choose(choice)} />
      ) : (
        <button type="button" class="wide" onClick={() => (isOpen.value = true)}>
          Sign in with a wallet
        </button>
      )}
      {action.isRunning && <p role="status">Waiting for your wallet…</p>}
      <Refusal error={action.error} />
      <p class="hint">
        {RAILS.length === 2
          ? 'A wallet of Base or Solana'
          : `A wallet of ${RAILS[0] === 'base' ? 'Base' : 'Solana'}`}{' '}
        signs a text, which costs nothing and moves nothing.
      </p>
    </section>
  );
}
