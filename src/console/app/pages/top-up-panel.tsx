/** Top-up from a wallet: amount, explanation, signature and progress. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { shortId, timeText, usdText } from '../format.ts';
import { RAIL_NAMES, type Rail, networkName } from '../page-facts.ts';
import { toast } from '../parts/announce.tsx';
import { AmountChoice, ErrorMessage, Segments, useAction } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Id } from '../parts/values.tsx';
import { useResource } from '../resource.ts';
import {
  abandonTopUp,
  dismissTopUp,
  explain,
  findOffers,
  resumeTopUp,
  startTopUp,
  topUp,
} from '../top-up.ts';
import { WalletError, type WalletChoice } from '../wallets/wallet.ts';
import { WalletList } from './wallet-list.tsx';

const AMOUNTS = [5, 10, 25, 100];
const USUAL_USD = 10;

function railOf(wallet: string): Rail {
  return wallet.startsWith('0x') ? 'base' : 'solana';
}

export function TopUpPanel({ wallet }: { wallet: string }) {
  const isOpen = useSignal(false);
  const { value: state } = topUp;
  const step = state?.step;
  useEffect(() => resumeTopUp(wallet), [wallet]);
  useEffect(() => {
    if (step === 'credited') toast('The top-up was credited');
  }, [step]);
  return (
    <section class="top-up">
      {state === undefined ? (
        <button type="button" class="primary" onClick={() => (isOpen.value = true)}>
          Add credit
        </button>
      ) : (
        <Progress again={() => (isOpen.value = true)} />
      )}
      {isOpen.value && state === undefined && (
        <TopUpWindow wallet={wallet} close={() => (isOpen.value = false)} />
      )}
    </section>
  );
}

function TopUpWindow({ wallet, close }: { wallet: string; close: () => void }) {
  const rail = railOf(wallet);
  const amount = useSignal(String(USUAL_USD));
  const action = useAction();
  const offered = useResource(`offers ${rail}`, () => findOffers(rail));
  const chosen = useSignal('');
  const usd = Number(amount.value);
  const { data: offers = [], error } = offered;
  const offer = offers.find((one) => one.offer.network === chosen.value) ?? offers[0];
  const network = offer?.offer.network ?? '';
  const minimum = offer?.minimumUsd ?? 0;
  const isTooLittle = !(usd >= minimum);
  const atLeast = `At least ${usdText(minimum)}.`;
  const pay = async (choice: WalletChoice): Promise<void> => {
    await action.run(async () => {
      const connected = await choice.connect();
      if (connected.address.toLowerCase() !== wallet.toLowerCase()) {
        throw new WalletError(
          `${choice.name} uses the account ${shortId(connected.address)}, but you are signed in with ${shortId(wallet)}. Switch the account in your wallet, because the paying wallet gets the credit.`,
        );
      }
      close();
      void startTopUp(connected, usd, network);
    });
  };
  return (
    <Overlay title="Add credit" close={close}>
      <p>
        Pay in USDC from your wallet <Id value={wallet} /> on{' '}
        {offer === undefined ? RAIL_NAMES[rail] : networkName(network)}.
      </p>
      {offers.length > 1 && (
        <Segments
          legend="Network"
          isLegendSeen
          value={network}
          options={offers.map(({ offer: one }) => [one.network, networkName(one.network)])}
          onInput={(one) => (chosen.value = one)}
        />
      )}
      <AmountChoice
        amounts={AMOUNTS.filter((one) => one >= minimum)}
        hint={atLeast}
        problem={isTooLittle ? atLeast : undefined}
        value={amount.value}
        onInput={(text) => (amount.value = text)}
      />
      <ErrorMessage error={error} />
      {offer !== undefined && !isTooLittle && (
        <>
          <h3>Next steps</h3>
          <ol class="steps">
            {explain(network, usd, shortId(offer.offer.payTo)).map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ol>
          <h3>Pay with</h3>
          <WalletList rail={rail} isBusy={action.isRunning} choose={(choice) => void pay(choice)} />
        </>
      )}
      {action.isRunning && <p role="status">Waiting for your wallet…</p>}
      <ErrorMessage error={action.error} />
    </Overlay>
  );
}

const STEPS = [
  ['signing', 'Signed in your wallet'],
  ['sending', 'Sent to the chain'],
  ['confirming', 'Confirmed by the chain'],
  ['credited', 'Credited'],
] as const;

function Progress({ again }: { again: () => void }) {
  const { value: state } = topUp;
  if (state === undefined) return null;
  const { step, amountUsd, rail, network, message, startedAt } = state;
  const at = STEPS.findIndex(([one]) => one === step);
  const isOver = step === 'credited' || step === 'failed';
  return (
    <div class={`progress ${step}`} role="status">
      <p class="title">
        {step === 'failed'
          ? 'The top-up failed'
          : step === 'credited'
            ? `${usdText(amountUsd)} was credited`
            : `Adding ${usdText(amountUsd)} on ${network === undefined ? RAIL_NAMES[rail] : networkName(network)}`}
      </p>
      {step !== 'failed' && (
        <ol class="way">
          {STEPS.map(([one, words], index) => (
            <li
              key={one}
              class={index < at || step === 'credited' ? 'done' : index === at ? 'now' : ''}
              aria-current={index === at ? 'step' : undefined}
            >
              {words}
            </li>
          ))}
        </ol>
      )}
      {step === 'signing' && <p>Open your wallet and sign the payment.</p>}
      {message !== undefined && <p class="text">{message}</p>}
      {!isOver && (
        <p class="soft">
          Started at {timeText(startedAt)}. You can close this page; it continues when you return.
        </p>
      )}
      <p class="row">
        {isOver && (
          <button type="button" onClick={dismissTopUp}>
            Close
          </button>
        )}
        {step === 'failed' && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              dismissTopUp();
              again();
            }}
          >
            Try again
          </button>
        )}
        {step === 'confirming' && (
          <button type="button" class="small" onClick={abandonTopUp}>
            Stop watching
          </button>
        )}
      </p>
    </div>
  );
}
