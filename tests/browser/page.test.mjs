// The page of a run in a real browser, narrow and wide, light and dark. Spec: D10, W2

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

import { HOSTILE, NUMBERS, batches, hostile, long, numbers, pairs, steps, tree, waiting } from "./runs.mjs";

const WIDTHS = [400, 1400];
const SCHEMES = ["light", "dark"];

let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
});

after(() => browser.close());

// Opens a page in every look, and holds what must be so in each of them.
async function looks(url, check) {
  for (const width of WIDTHS) {
    for (const colorScheme of SCHEMES) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
      const page = await context.newPage();
      const wrong = [];
      page.on("console", (message) => {
        if (["error", "warning"].includes(message.type())) wrong.push(message.text());
      });
      page.on("pageerror", (error) => wrong.push(String(error)));
      page.on("request", (request) => {
        if (!request.url().startsWith("file:")) wrong.push(`asked for ${request.url()}`);
      });
      page.on("dialog", (dialog) => wrong.push(dialog.message()));
      await page.goto(url);
      const look = `${width} px, ${colorScheme}`;
      await fits(page, look);
      await check(page, look, width);
      await fits(page, `${look}, opened`);
      assert.deepEqual(wrong, [], look);
      if (process.env.SHOTS) {
        const name = `${url.split("/").at(-2)}-${width}-${colorScheme}.png`;
        await page.screenshot({ path: `${process.env.SHOTS}/${name}`, fullPage: true });
      }
      await context.close();
    }
  }
}

async function fits(page, look) {
  const [needed, given] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(needed <= given, `${look}: ${needed} px on a screen of ${given}`);
}

// Can a person see it?
async function seen(page, selector, text, look) {
  const found = page.locator(selector).filter({ hasText: text }).first();
  const shown = found.waitFor({ state: "visible", timeout: 5_000 });
  await assert.doesNotReject(shown, `${look}: ${text} is not shown`);
  const box = await found.boundingBox();
  const { width } = page.viewportSize();
  assert.ok(box.width > 0 && box.x >= 0 && box.x + box.width <= width, `${look}: ${JSON.stringify(box)}`);
}

test("200 calls at two at once draw two lanes", async () => {
  for (const url of [pairs(), batches()]) {
    await looks(url, async (page, look) => {
      assert.equal(await page.locator(".row.lane").count(), 2, look);
      assert.equal(await page.locator(".row.lane .bar.tool").count(), 200, look);
      assert.equal(await page.locator(".call").count(), 200, look);
    });
  }
});

test("the row of a call shows its arguments", async () => {
  await looks(batches(), async (page, look) => {
    await seen(page, ".call .args", `"pattern":"pattern-0-*"`, look);
    await seen(page, ".call .args", `"pattern":"pattern-199-*"`, look);
    const { width } = await page.locator(".call .args").first().boundingBox();
    assert.ok(width > 150, `${look}: there are ${width} px for arguments`);
    await page.locator(".call > summary").first().click();
    await seen(page, ".call pre", `"pattern": "pattern-0-*"`, look);
  });
});

test("text of a model stays text", async () => {
  await looks(hostile(), async (page, look) => {
    await seen(page, ".says", HOSTILE, look);
    for (const call of await page.locator(".call > summary").all()) await call.click();
    await page.locator("#record > summary").click();
    for (const event of await page.locator(".event > summary").all()) await event.click();
    await seen(page, ".call pre", "<script>document.title", look);
    assert.match(await page.title(), /^browser: run_/, look);
    const made = await page.evaluate(() => [document.scripts.length, document.images.length]);
    assert.deepEqual(made, [2, 0], look);
  });
});

test("a diff that waits for a person is shown", async () => {
  await looks(waiting(), async (page, look) => {
    await page.locator(".call > summary").click();
    await seen(page, "pre.diff .removed", "-two", look);
    await seen(page, "pre.diff .added", "+2", look);
    await seen(page, "pre.diff .added", `+${HOSTILE}`, look);
    await seen(page, ".call h4", "what a person is asked about", look);
  });
});

test("runs below stand where they were dispatched", async () => {
  await looks(tree(), async (page, look) => {
    assert.equal(await page.locator(".turns .below").count(), 2, look);
    await seen(page, ".below > summary", "completed", look);
    await seen(page, ".below > summary", "1 failure", look);
    await seen(page, ".note", "operator waiting", look);
    await seen(page, ".note", "budget granted", look);
    assert.equal(await page.locator(".timeline .group").count(), 2, look);
    // By the keyboard alone.
    await page.locator("#r3-run > summary").focus();
    await page.keyboard.press("Enter");
    await seen(page, "#r3-run .end.failed", "no answer came", look);
    await seen(page, "#r3-run .tool-name", "fs_list", look);
    // A link leads into a run that was never opened.
    await page.evaluate(() => { location.hash = "#r2-seq-2"; });
    await seen(page, "#r2-seq-2", "model.requested", look);
    // The bar of a call of a run below opens it.
    await page.locator(`[data-call="r2-c1"]`).click();
    await seen(page, "#r2-call-c1", "fs_list", look);
    const ids = await page.evaluate(() => [...document.querySelectorAll("[id]")].map((each) => each.id));
    assert.equal(new Set(ids).size, ids.length, `${look}: an id stands twice`);
  });
});

test("numbers keep the text of the record", async () => {
  await looks(numbers(), async (page, look) => {
    await seen(page, ".call .args", `{"path":${NUMBERS}}`, look);
    await page.locator(".call > summary").click();
    for (const line of [`"amount": 3.10`, `"id": 12345678901234567890`, `"rate": 0.1234567890123456789`]) {
      await seen(page, ".call pre", line, look);
    }
  });
});

test("a failed step is a failure", async () => {
  await looks(steps(), async (page, look) => {
    await seen(page, ".facts", "1 failed", look);
    await seen(page, ".failures h2", "1 failure", look);
    await seen(page, ".failures .what", "pay", look);
    await seen(page, ".turns .note.failed", "it failed operator.non_retryable", look);
  });
});

test("a long record opens", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  await page.goto(long());
  await page.evaluate(() => { location.hash = "#seq-130000"; });
  await page.locator("#seq-130000.here").waitFor({ state: "attached", timeout: 120_000 });
  assert.deepEqual(wrong, []);
  await context.close();
});

test("text stands out from its ground in both schemes", async () => {
  const grounds = new Set();
  await looks(hostile(), async (page, look) => {
    for (const selector of ["body", ".call .args", ".call .brief", ".about"]) {
      const [ratio, ground] = await page.locator(selector).first().evaluate(contrast);
      grounds.add(ground);
      assert.ok(ratio >= 4.5, `${look}: ${selector} has a contrast of ${ratio}`);
    }
  });
  assert.ok(grounds.size >= 4, `the schemes have grounds of their own: ${[...grounds]}`);
});

// Runs in the page: the contrast of an element's text (WCAG 2.2, 1.4.3), and what it stands on.
function contrast(element) {
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  let ground = element;
  while (ground && parse(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
  const back = getComputedStyle(ground ?? document.body).backgroundColor;
  const light = (text) => {
    const [r, g, b] = parse(text).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [light(getComputedStyle(element).color), light(back)].sort((a, b) => a - b);
  return [(high + 0.05) / (low + 0.05), back];
}

test("without JavaScript the page says what it is", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(hostile());
  const text = page.locator("noscript p");
  assert.ok(await text.isVisible());
  assert.match(await text.textContent(), /^Run run_\S+ of agent browser: completed\./);
  assert.match(await text.textContent(), /with JavaScript, which is switched off here/);
  assert.match(await text.textContent(), /`backstop trace run_\S+` prints it as text\./);
  await context.close();
});
